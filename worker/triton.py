"""The one place that speaks to Triton: tritonclient's gRPC client with a deadline on every call.

Made in a pool child, after the fork, and closed there: a gRPC channel must not cross a fork. Every error of
gRPC becomes one of ours in :func:`translate`, and nowhere else.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
from numpy.typing import NDArray
from tritonclient.grpc import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from tidegate.errors import (
    InferenceError,
    InferenceTimeout,
    ModelFailed,
    ModelNotAvailable,
    ModelOutputInvalid,
    ModelOverloaded,
    ModelRejectedInput,
    ModelUnreachable,
)
from tidegate.settings import Settings
from worker.contract import ModelContract, read_contract

#: Triton says UNAVAILABLE for three different things; only the words tell them apart.
#: Source: triton-inference-server/core, src/dynamic_batch_scheduler.cc, src/scheduler_utils.cc,
#: src/model_repository_manager/model_repository_manager.cc.
OVERLOADED_WORDS = ("exceeds maximum queue size", "request timeout expired", "queue is full", "too many requests")
NOT_AVAILABLE_WORDS = (
    "unknown model",
    "is not ready",
    "no available versions",
    "is not found",
    "not available",
    "unload",
)

#: Longest part of a message of Triton's that goes into one of ours.
MESSAGE_LIMIT = 300

_BY_STATUS: dict[grpc.StatusCode, type[InferenceError]] = {
    grpc.StatusCode.UNAVAILABLE: ModelUnreachable,
    grpc.StatusCode.NOT_FOUND: ModelNotAvailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ModelOverloaded,
    grpc.StatusCode.DEADLINE_EXCEEDED: InferenceTimeout,
    grpc.StatusCode.INVALID_ARGUMENT: ModelRejectedInput,
    grpc.StatusCode.OUT_OF_RANGE: ModelRejectedInput,
    grpc.StatusCode.OK: ModelFailed,
    grpc.StatusCode.CANCELLED: ModelFailed,
    grpc.StatusCode.UNKNOWN: ModelFailed,
    grpc.StatusCode.ALREADY_EXISTS: ModelFailed,
    grpc.StatusCode.PERMISSION_DENIED: ModelFailed,
    grpc.StatusCode.FAILED_PRECONDITION: ModelFailed,
    grpc.StatusCode.ABORTED: ModelFailed,
    grpc.StatusCode.UNIMPLEMENTED: ModelFailed,
    grpc.StatusCode.INTERNAL: ModelFailed,
    grpc.StatusCode.DATA_LOSS: ModelFailed,
    grpc.StatusCode.UNAUTHENTICATED: ModelFailed,
}

_SENTENCES: dict[type[InferenceError], str] = {
    ModelUnreachable: "Triton cannot be reached",
    ModelNotAvailable: "Triton does not have the model ready",
    ModelOverloaded: "Triton is overloaded",
    InferenceTimeout: "Triton did not answer in time",
    ModelRejectedInput: "The model refused the input",
    ModelFailed: "The model failed",
}


def classify(status: grpc.StatusCode, message: str) -> type[InferenceError]:
    """Which of our errors a gRPC status with this message is."""
    words = message.lower()
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL):
        if any(word in words for word in OVERLOADED_WORDS):
            return ModelOverloaded
        if any(word in words for word in NOT_AVAILABLE_WORDS):
            return ModelNotAvailable
    return _BY_STATUS[status]


def translate(error: InferenceServerException) -> InferenceError:
    """Our error for one of tritonclient's; an error without a gRPC status arose on our side of the wire."""
    message = error.message() or ""
    name = (error.status() or "").removeprefix("StatusCode.")
    kind = classify(grpc.StatusCode[name], message) if name in grpc.StatusCode.__members__ else ModelRejectedInput
    detail = " ".join(message.split())[:MESSAGE_LIMIT]
    return kind(f"{_SENTENCES[kind]}: {detail}" if detail else f"{_SENTENCES[kind]}.")


def channel_target(url: str) -> str:
    """GRPC's name for ``TIDEGATE_TRITON_URL``: a DNS name with all its addresses, or a comma list of hosts."""
    hosts = [part.strip() for part in url.split(",") if part.strip()]
    if len(hosts) == 1:
        return f"dns:///{hosts[0]}"
    return "ipv4:" + ",".join(_numeric(host) for host in hosts)


def _numeric(host_and_port: str) -> str:
    host, _, port = host_and_port.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{port}"
    except OSError as error:
        raise ModelUnreachable(f"{_SENTENCES[ModelUnreachable]}: no address for one of its hosts") from error


#: Several addresses share the calls; a lost one is tried again soon, since a queue waits for it.
CHANNEL_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Off: Triton closes connections that ping more often than it allows, and every call has a deadline anyway.
    ("grpc.keepalive_time_ms", 2**31 - 1),
]


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

    def infer(self, contract: ModelContract, batch: NDArray[Any], version: str = "") -> tuple[NDArray[Any], str]:
        """Run one batch.

        Args:
            contract: of the model.
            batch: [n, ...image shape], of the contract's datatype.
            version: which version must answer; empty for Triton's choice.

        Returns:
            The raw output, as the model shapes it, and the version that answered.
        """
        try:
            answer = self._client.infer(
                contract.name,
                [_tensor(contract, batch)],
                model_version=version,
                outputs=[InferRequestedOutput(contract.output_name)],
                client_timeout=self._infer_timeout_seconds,
            )
        except InferenceServerException as error:
            raise translate(error) from error
        output = answer.as_numpy(contract.output_name)
        if output is None:
            raise ModelOutputInvalid(f"The answer lacks the output {contract.output_name!r}.")
        return output, answer.get_response().model_version

    def close(self) -> None:
        """Close the channel."""
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
