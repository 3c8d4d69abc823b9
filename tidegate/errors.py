"""Everything that can go wrong, as one tree.

    TidegateError
    ├── RequestError                the caller's fault
    │   ├── InvalidRequest          invalid_request
    │   ├── InvalidField            invalid_field
    │   ├── InvalidBase64           invalid_base64
    │   ├── ImageTooLarge           image_too_large
    │   ├── UnsupportedFormat       unsupported_format
    │   ├── ImageCorrupt            image_corrupt
    │   ├── ModelNotFound           model_not_found
    │   ├── JobNotFound             job_not_found
    │   └── JobFinished             job_finished
    ├── UnavailableError            ours, and it passes: come back later
    │   ├── QueueFull               queue_full
    │   ├── NoModelsYet             no_models_yet
    │   └── StoreUnavailable        store_unavailable
    ├── InferenceError              between a worker and Triton
    │   ├── ModelUnreachable        model_unreachable
    │   ├── ModelOverloaded         model_overloaded
    │   ├── ModelNotAvailable       model_not_available
    │   ├── InferenceTimeout        inference_timeout
    │   ├── ModelFailed             model_failed
    │   ├── ModelRejectedInput      model_rejected_input
    │   └── ModelOutputInvalid      model_output_invalid
    ├── ModelContractError          model_contract_broken
    ├── WorkerLost                  worker_lost
    ├── InternalError               internal_error
    └── SettingsError               invalid_settings

``code`` is what clients see and may rely on; ``retryable`` says whether the same thing may go well
later without anyone changing it. ``api/errors.py`` alone knows which HTTP status each class is, and
``worker/triton.py`` alone knows which gRPC status becomes which class.
"""

from __future__ import annotations

from typing import ClassVar


class TidegateError(Exception):
    """The root. ``str(error)`` is one plain sentence, without a byte of what a client sent.

    Attributes:
        code: stable, snake_case; what clients and dashboards match on.
        retryable: the same request may succeed later, unchanged.
        retry_after_seconds: when that is worth a try, where it is known.
    """

    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class RequestError(TidegateError):
    """The caller must change something."""

    code = "invalid_request"


class InvalidRequest(RequestError):
    """The request cannot be read at all: broken JSON, a missing part, a header that is none."""


class InvalidField(RequestError):
    """One or more fields have values that are not allowed.

    Attributes:
        problems: pairs of (JSON pointer of the field, what is wrong with it).
    """

    code = "invalid_field"

    def __init__(self, message: str, *, problems: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(message)
        self.problems = problems


class InvalidBase64(RequestError):
    """The text is not base64 in any honest spelling."""

    code = "invalid_base64"


class ImageTooLarge(RequestError):
    """More bytes, pixels or frames than the limits allow."""

    code = "image_too_large"


class UnsupportedFormat(RequestError):
    """The bytes are no image in a format that is accepted."""

    code = "unsupported_format"


class ImageCorrupt(RequestError):
    """The format is accepted, but the file is broken, truncated or empty."""

    code = "image_corrupt"


class ModelNotFound(RequestError):
    """No model of that name is served here."""

    code = "model_not_found"


class JobNotFound(RequestError):
    """There never was such a job, or it is no longer kept."""

    code = "job_not_found"


class JobFinished(RequestError):
    """The job is over, so there is nothing left to cancel."""

    code = "job_finished"


class UnavailableError(TidegateError):
    """A part of Tidegate cannot serve now; nothing was accepted."""

    code = "unavailable"
    retryable = True


class QueueFull(UnavailableError):
    """As many jobs or bytes wait as the limits allow."""

    code = "queue_full"


class NoModelsYet(UnavailableError):
    """No worker has reported a model so far, so there is nothing to accept jobs for."""

    code = "no_models_yet"


class StoreUnavailable(UnavailableError):
    """Redis does not answer, refuses writes or is full."""

    code = "store_unavailable"


class InferenceError(TidegateError):
    """A call to Triton did not bring an answer."""

    code = "inference_failed"
    retryable = True


class ModelUnreachable(InferenceError):
    """Nothing answers at the Triton address, or the connection broke."""

    code = "model_unreachable"


class ModelOverloaded(InferenceError):
    """Triton answers, and says that its queue is full or its queue time ran out."""

    code = "model_overloaded"


class ModelNotAvailable(InferenceError):
    """Triton answers, but does not have this model or version ready."""

    code = "model_not_available"


class InferenceTimeout(InferenceError):
    """Triton took the request and did not answer before the deadline of the call."""

    code = "inference_timeout"


class ModelFailed(InferenceError):
    """Triton or the model failed inside."""

    code = "model_failed"


class ModelRejectedInput(InferenceError):
    """The model refuses this input; the same input will be refused again."""

    code = "model_rejected_input"
    retryable = False


class ModelOutputInvalid(InferenceError):
    """The answer cannot be used: wrong number of rows, NaN or infinity."""

    code = "model_output_invalid"
    retryable = False


class ModelContractError(TidegateError):
    """A model in the repository is not a classifier that Tidegate can serve; the message says why."""

    code = "model_contract_broken"


class WorkerLost(TidegateError):
    """The process that ran the job died each time it was tried."""

    code = "worker_lost"


class InternalError(TidegateError):
    """A bug of ours."""

    code = "internal_error"


class SettingsError(TidegateError):
    """A setting is unknown, out of bounds, or contradicts another; the message names it."""

    code = "invalid_settings"
