"""The calls to Triton, or another server of the Open Inference Protocol.

Every one has a deadline, and ends with an answer or an InferenceError. What another server does not tell,
``TIDEGATE_MODELS`` stands in for; ``docs/models.md`` says what that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tidegate.errors import (
    InferenceError,
    InferenceTimeout,
    ModelFailed,
    ModelNotAvailable,
    ModelOutputInvalid,
    ModelRejectedInput,
    ModelUnreachable,
)
from tidegate.settings import Settings
from worker.contract import ModelContract, complete_contract
from worker.labels import parse_labels
from worker.limits import CallLimits
from worker.scores import split_rows
from worker.triton.channel import CHANNEL_OPTIONS, channel_target
from worker.triton.failures import is_unimplemented, translate
from worker.triton.rooms import SharedRooms

#: Outputs that Triton's classification extension takes. Source: triton-inference-server/server, classification.cc.
CLASSIFIED_TYPES = frozenset({"FP32", "FP64"})


@dataclass(frozen=True)
class RepositoryModel:
    """One row of the repository index.

    Attributes:
        ready: whether the server serves it.
        version: empty on a server that has no versions.
        reason: why not, in the server's words.
    """

    name: str
    version: str
    ready: bool
    reason: str


class Triton:
    """A model server, behind one channel. Every method raises an InferenceError when the call brings no answer."""

    def __init__(self, settings: Settings) -> None:
        self._client = InferenceServerClient(channel_target(settings.triton_url), channel_args=CHANNEL_OPTIONS)
        self._infer_timeout_seconds = settings.infer_timeout_seconds
        self._probe_timeout_seconds = settings.probe_timeout_seconds
        self._declared = settings.models
        self._limits = CallLimits.of(settings)
        self._shared = SharedRooms(self._client, settings)

    def repository(self) -> list[RepositoryModel]:
        """Every version of every model that the server knows of; those that it never tried to load are left out.

        From a server without an index, the models that ``TIDEGATE_MODELS`` names.
        """
        try:
            index = self._client.get_model_repository_index(client_timeout=self._probe_timeout_seconds)
        except InferenceServerException as error:
            if not is_unimplemented(error):
                raise translate(error) from error
            return [row for name in self._declared for row in self._declared_rows(name)]
        # MLServer writes it as its enumeration prints itself, ``State.READY``.
        return [
            RepositoryModel(row.name, row.version, row.state.rpartition(".")[2] == "READY", row.reason)
            for row in index.models
        ]

    def _declared_rows(self, model: str) -> list[RepositoryModel]:
        try:
            ready = self._client.is_model_ready(model, client_timeout=self._probe_timeout_seconds)
            metadata = self._metadata(model)
        except InferenceServerException as error:
            translated = translate(error)
            if not isinstance(translated, ModelNotAvailable):
                raise translated from error
            return [RepositoryModel(model, "", ready=False, reason=str(translated))]
        return [RepositoryModel(model, version, ready, "") for version in metadata.get("versions", [""])]

    def contract(self, model: str) -> ModelContract:
        """Read what the model promises, from its configuration and metadata.

        Raises:
            ModelContractError: it is no classifier that Tidegate can serve.
        """
        try:
            metadata, config = self._metadata(model), self._config(model)
        except InferenceServerException as error:
            raise translate(error) from error
        contract = complete_contract(config, metadata, self._declared.get(model))
        self._limits.images_of(contract)
        return contract

    def _metadata(self, model: str) -> dict[str, Any]:
        metadata: dict[str, Any] = self._client.get_model_metadata(
            model, as_json=True, client_timeout=self._probe_timeout_seconds
        )
        return metadata

    def _config(self, model: str) -> dict[str, Any] | None:
        try:
            config: dict[str, Any] = self._client.get_model_config(
                model, as_json=True, client_timeout=self._probe_timeout_seconds
            )
        except InferenceServerException as error:
            if not is_unimplemented(error):
                raise
            return None
        return config

    def labels(self, contract: ModelContract, sample: NDArray[Any]) -> tuple[str, ...] | None:
        """Run the model once, and have the server tell every label with the answer.

        Args:
            contract: of the model.
            sample: a batch of one, as :meth:`infer` takes it.

        Returns:
            One label a class, or None where the model has none or its server cannot tell them.

        Raises:
            ModelContractError: there is not a label for each class.
        """
        rows = self._classified(contract, sample) if contract.output_datatype in CLASSIFIED_TYPES else None
        if rows is None:
            rows, _ = self.infer(contract, sample)
        if rows.dtype.hasobject:
            return parse_labels(rows, contract)
        # A server that knows no classification passes over it.
        split_rows(rows, expected=1, classes=contract.classes)
        return None

    def _classified(self, contract: ModelContract, sample: NDArray[Any]) -> NDArray[Any] | None:
        """What the classification extension answers; None where the server refuses it."""
        output = InferRequestedOutput(contract.output_name, class_count=contract.classes)
        try:
            answer = self._client.infer(
                contract.name,
                [_tensor(contract, sample)],
                outputs=[output],
                client_timeout=self._infer_timeout_seconds,
            )
        except InferenceServerException as error:
            translated = translate(error)
            if isinstance(translated, ModelRejectedInput | ModelFailed):
                return None
            raise translated from error
        rows: NDArray[Any] | None = answer.as_numpy(contract.output_name)
        return rows

    def room(self, contract: ModelContract, count: int) -> NDArray[Any]:
        """Where to prepare ``count`` images: in shared memory where Triton can read it. Valid until the next call.

        Returns:
            [count, ...image shape], of the contract's type; values undefined.
        """
        return self._shared.room(contract, count)

    def infer(self, contract: ModelContract, batch: NDArray[Any], version: str = "") -> tuple[NDArray[Any], str]:
        """Run one batch.

        Args:
            contract: of the model.
            batch: [n, ...image shape], of the contract's datatype; best a part of :meth:`room`.
            version: which version must answer; empty for Triton's choice.

        Returns:
            The raw output, as the model shapes it, and the version that answered.
        """
        shared = self._shared.tensor(contract, batch)
        try:
            answer = self._call(contract, shared or _tensor(contract, batch), version)
        except InferenceServerException as error:
            if shared is None or not self._shared.is_to_blame(error):
                raise self._failure(error) from error
            # Triton has started anew and knows no regions; this once the images go by message.
            answer = self._call_plainly(contract, batch, version)
        output = answer.as_numpy(contract.output_name)
        if output is None:
            raise ModelOutputInvalid(f"The answer lacks the output {contract.output_name!r}.")
        return output, answer.get_response().model_version

    def _call(self, contract: ModelContract, tensor: InferInput, version: str) -> Any:
        return self._client.infer(
            contract.name,
            [tensor],
            model_version=version,
            outputs=[InferRequestedOutput(contract.output_name)],
            client_timeout=self._infer_timeout_seconds,
        )

    def _call_plainly(self, contract: ModelContract, batch: NDArray[Any], version: str) -> Any:
        try:
            return self._call(contract, _tensor(contract, batch), version)
        except InferenceServerException as error:
            raise self._failure(error) from error

    def _failure(self, error: InferenceServerException) -> InferenceError:
        """What a failed inference means: a time-out of a server that does not even say that it lives is an outage."""
        failure = translate(error)
        if not isinstance(failure, InferenceTimeout):
            return failure
        try:
            self._client.is_server_live(client_timeout=self._probe_timeout_seconds)
        except InferenceServerException as silence:
            if isinstance(translate(silence), InferenceTimeout | ModelUnreachable):
                return ModelUnreachable("Triton cannot be reached: it answers nothing at all.")
        return failure

    def close(self) -> None:
        """Give shared memory back and close the channel."""
        self._shared.close()
        self._client.close()


def _tensor(contract: ModelContract, batch: NDArray[Any]) -> InferInput:
    values = contract.as_input(batch)
    tensor = InferInput(contract.input_name, list(values.shape), contract.datatype)
    tensor.set_data_from_numpy(values)
    return tensor
