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
    │   ├── JobFinished             job_finished
    │   ├── DeliveryNotFound        delivery_not_found
    │   ├── Unauthorized            unauthorized
    │   ├── IdempotencyKeyReused    idempotency_key_reused
    │   └── UrlNotAllowed           url_not_allowed
    ├── ThrottledError              the caller's haste or slowness: the same may go well later
    │   ├── RateLimited             rate_limited
    │   └── UploadTimeout           upload_timeout
    ├── UnavailableError            ours, and it passes: come back later
    │   ├── QueueFull               queue_full
    │   ├── DeadlineUnreachable     deadline_unreachable
    │   ├── UploadsFull             uploads_full
    │   ├── NoModelsYet             no_models_yet
    │   ├── ShuttingDown            shutting_down
    │   └── StoreUnavailable        store_unavailable
    ├── InferenceError              between a worker and Triton
    │   ├── ModelUnreachable        model_unreachable
    │   ├── ModelOverloaded         model_overloaded
    │   ├── ModelNotAvailable       model_not_available
    │   ├── InferenceTimeout        inference_timeout
    │   ├── ModelFailed             model_failed
    │   ├── ModelRejectedInput      model_rejected_input
    │   └── ModelOutputInvalid      model_output_invalid
    ├── OutboundError               between a worker and a host that a client named
    │   ├── UrlUnreachable          url_unreachable
    │   ├── UrlTimeout              url_timeout
    │   ├── UrlStatus               url_status
    │   ├── UrlTooManyRedirects     url_too_many_redirects
    │   ├── UrlTooLarge             url_too_large
    │   └── UrlNotAnImage           url_not_an_image
    ├── ModelContractError          model_contract_broken
    ├── WorkerLost                  worker_lost
    ├── ImageLost                   image_lost
    ├── InternalError               internal_error
    └── SettingsError               invalid_settings

``code`` is what clients see and may rely on; ``retryable`` says whether the same thing may go well
later without anyone changing it. ``api/errors.py`` alone knows which HTTP status each class is, and
``worker/triton/failures.py`` alone knows which gRPC status becomes which class.
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


class DeliveryNotFound(RequestError):
    """There never was such a webhook delivery, or it is no longer kept."""

    code = "delivery_not_found"


class Unauthorized(RequestError):
    """The caller did not show a key that is known here."""

    code = "unauthorized"


class IdempotencyKeyReused(RequestError):
    """Another request was sent under this idempotency key before."""

    code = "idempotency_key_reused"


class UrlNotAllowed(RequestError):
    """A URL leads where Tidegate does not go: see ``tidegate/outbound``."""

    code = "url_not_allowed"


class ThrottledError(TidegateError):
    """The caller asks too much at a time, or is too slow; nothing need be changed but its pace."""

    code = "throttled"
    retryable = True


class RateLimited(ThrottledError):
    """The caller's key has used up what it may for now.

    Attributes:
        policies: names of the limits, as the ``RateLimit`` headers tell them.
    """

    code = "rate_limited"

    def __init__(
        self, message: str, *, policies: tuple[str, ...] = (), retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)
        self.policies = policies


class UploadTimeout(ThrottledError):
    """The body of the request took too long to arrive."""

    code = "upload_timeout"


class UnavailableError(TidegateError):
    """A part of Tidegate cannot serve now; nothing was accepted."""

    code = "unavailable"
    retryable = True


class QueueFull(UnavailableError):
    """As many jobs or bytes wait as the limits allow."""

    code = "queue_full"


class DeadlineUnreachable(UnavailableError):
    """At the present pace the answer would come after the deadline that was asked for."""

    code = "deadline_unreachable"


class UploadsFull(UnavailableError):
    """This API process has as many bytes of uploads in hand as it may."""

    code = "uploads_full"


class NoModelsYet(UnavailableError):
    """No worker has reported a model so far, so there is nothing to accept jobs for."""

    code = "no_models_yet"


class ShuttingDown(UnavailableError):
    """This process was told to stop; others serve."""

    code = "shutting_down"


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


class OutboundError(TidegateError):
    """A request to a host that a client named did not bring what was hoped for."""

    code = "outbound_failed"


class UrlUnreachable(OutboundError):
    """The host has no address, takes no connection, breaks it off, or shows no valid certificate."""

    code = "url_unreachable"
    retryable = True


class UrlTimeout(OutboundError):
    """The answer was not complete within the time limit."""

    code = "url_timeout"
    retryable = True


class UrlStatus(OutboundError):
    """The answer has another status than 200."""

    code = "url_status"


class UrlTooManyRedirects(OutboundError):
    """The URL leads on and on."""

    code = "url_too_many_redirects"


class UrlTooLarge(OutboundError):
    """The answer has more bytes than an image may have, counted after decoding."""

    code = "url_too_large"


class UrlNotAnImage(OutboundError):
    """The answer's first bytes are those of no image that is accepted."""

    code = "url_not_an_image"


class ModelContractError(TidegateError):
    """A model in the repository is not a classifier that Tidegate can serve; the message says why."""

    code = "model_contract_broken"


class WorkerLost(TidegateError):
    """The process that ran the job died each time it was tried."""

    code = "worker_lost"


class ImageLost(TidegateError):
    """The store has a job, and its image no more."""

    code = "image_lost"
    retryable = True


class InternalError(TidegateError):
    """A bug of ours."""

    code = "internal_error"


class SettingsError(TidegateError):
    """A setting is unknown, out of bounds, or contradicts another; the message names it."""

    code = "invalid_settings"
