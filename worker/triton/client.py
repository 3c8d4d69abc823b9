"""The calls to Triton. Every one has a deadline, and ends with an answer or an InferenceError."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tidegate.errors import ModelFailed, ModelOutputInvalid, ModelRejectedInput
from tidegate.settings import Settings
from worker.contract import ModelContract, read_contract
from worker.triton.channel import CHANNEL_OPTIONS, channel_target
from worker.triton.failures import translate
from worker.triton.rooms import SharedRooms


@dataclass(frozen=True)
class RepositoryModel:
    """One row of Triton's repository index.

    Attributes:
        ready: whether Triton serves it.
        reason: why not, in Triton's words.
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
        self._shared = SharedRooms(self._client, settings)

    def repository(self) -> list[RepositoryModel]:
        """Every version of every model that Triton knows of; versions that it never tried to load are left out."""
        try:
            index = self._client.get_model_repository_index(client_timeout=self._probe_timeout_seconds)
        except InferenceServerException as error:
            raise translate(error) from error
        return [RepositoryModel(row.name, row.version, row.state == "READY", row.reason) for row in index.models]

    def contract(self, model: str, version: str = "") -> ModelContract:
        """Read what the model promises, from its configuration and metadata.

        Raises:
            ModelContractError: it is no classifier that Tidegate can serve.
        """
        timeout = self._probe_timeout_seconds
        try:
            config = self._client.get_model_config(model, version, as_json=True, client_timeout=timeout)
            metadata = self._client.get_model_metadata(model, version, as_json=True, client_timeout=timeout)
        except InferenceServerException as error:
            raise translate(error) from error
        return read_contract(config, metadata)

    def labels(self, contract: ModelContract, sample: NDArray[Any]) -> tuple[str, ...] | None:
        """Ask for every label at once, through the classification extension; this also warms the model up.

        Args:
            contract: of the model.
            sample: a batch of one, as :meth:`infer` takes it.

        Returns:
            One label a class, or None where the model has none or its output type cannot be classified by Triton.
        """
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
        return parse_labels(answer.as_numpy(contract.output_name), contract.classes)

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
                raise translate(error) from error
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
            raise translate(error) from error

    def close(self) -> None:
        """Give shared memory back and close the channel."""
        self._shared.close()
        self._client.close()


def _tensor(contract: ModelContract, batch: NDArray[Any]) -> InferInput:
    values = contract.as_input(batch)
    tensor = InferInput(contract.input_name, list(values.shape), contract.datatype)
    tensor.set_data_from_numpy(values)
    return tensor


def parse_labels(rows: NDArray[Any] | None, classes: int) -> tuple[str, ...] | None:
    """Read ``score:index:label`` strings, in any order, into labels by index; None when there are none.

    Source: Triton's classification extension, protocol/extension_classification.md.
    """
    if rows is None:
        return None
    labels: dict[int, str] = {}
    for row in np.ravel(rows):
        parts = bytes(row).decode("utf-8", "replace").split(":", 2)
        if len(parts) == 3:  # noqa: PLR2004  # score, index, label
            labels[int(parts[1])] = parts[2]
    if len(labels) != classes:
        return None
    return tuple(labels[index] for index in range(classes))
