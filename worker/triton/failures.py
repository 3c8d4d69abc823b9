"""What an error of gRPC or of tritonclient means to us: the one mapping, total over gRPC's statuses."""

from __future__ import annotations

import grpc
from tritonclient.utils import InferenceServerException

from tidegate.errors import (
    InferenceError,
    InferenceTimeout,
    ModelFailed,
    ModelNotAvailable,
    ModelOverloaded,
    ModelRejectedInput,
    ModelUnreachable,
)

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

#: gRPC itself says RESOURCE_EXHAUSTED of a message that is larger than one of the sides takes.
TOO_LARGE_WORDS = ("message larger than max",)

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


def is_unimplemented(error: InferenceServerException) -> bool:
    """Whether the server does not have the method at all, as others than Triton lack its extensions."""
    return bool(error.status() == str(grpc.StatusCode.UNIMPLEMENTED))


def classify(status: grpc.StatusCode, message: str) -> type[InferenceError]:
    """Which of our errors a gRPC status with this message is."""
    words = message.lower()
    if status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL):
        if any(word in words for word in OVERLOADED_WORDS):
            return ModelOverloaded
        if any(word in words for word in NOT_AVAILABLE_WORDS):
            return ModelNotAvailable
    if status is grpc.StatusCode.RESOURCE_EXHAUSTED and any(word in words for word in TOO_LARGE_WORDS):
        return ModelRejectedInput
    return _BY_STATUS[status]


def translate(error: InferenceServerException) -> InferenceError:
    """Our error for one of tritonclient's; an error without a gRPC status arose on our side of the wire."""
    message = error.message() or ""
    name = (error.status() or "").removeprefix("StatusCode.")
    kind = classify(grpc.StatusCode[name], message) if name in grpc.StatusCode.__members__ else ModelRejectedInput
    detail = " ".join(message.split())[:MESSAGE_LIMIT]
    return kind(f"{_SENTENCES[kind]}: {detail}" if detail else f"{_SENTENCES[kind]}.")
