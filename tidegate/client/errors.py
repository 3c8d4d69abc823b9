"""Everything that can go wrong for a client, as one tree.

    ClientError
    ├── RequestError            the request, or what it is about, is not right
    │   ├── ImageError          unreadable_file, image_too_large, unsupported_format, image_corrupt, invalid_base64
    │   ├── UrlError            url_not_allowed, and what became of fetching an image by its URL: url_...
    │   ├── NotFound            job_not_found, model_not_found, delivery_not_found, not_found
    │   ├── NotAuthorized       unauthorized, forbidden
    │   ├── Conflict            job_finished, idempotency_key_reused
    │   └── ThrottledError      throttled, rate_limited, upload_timeout: too much or too slow; come back later
    ├── UnavailableError        queue_full, uploads_full, no_models_yet, store_unavailable, deadline_unreachable, ...
    ├── InferenceError          the image is right, but the model or a worker failed on it: model_..., worker_lost
    ├── JobCanceled             canceled
    ├── JobExpired              expired
    ├── ServerError             internal_error, and every answer that is not the API's
    ├── ApiUnreachable          unreachable: no answer at all
    └── WaitTimeout             wait_timeout: the job has not ended in time, and goes on

A code stands for the same class wherever it comes from: an answer of the API, or the error of a job that failed. One
that is new to this client keeps its name in ``code``, and is classed by the status of the answer that brought it.
"""

from __future__ import annotations

import email.utils
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType

import httpx
from pydantic import ValidationError

from tidegate.client.documents import FieldProblem, JobError, JobState, Problem


class ClientError(Exception):
    """The root. ``str(error)`` is one sentence for people.

    Attributes:
        code: stable, snake_case; the API's own, or one of those above.
        retryable: the same may go well later, unchanged.
        status: of the HTTP answer; None where there was none.
        retry_after_seconds: when a retry is worth a try, where the API says so.
        fields: what is wrong with which field, for ``invalid_field``.
        job: the job that ended without a result, or that was waited for.
    """

    code = "error"
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        retryable: bool | None = None,
        status: int | None = None,
        job: JobState | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.retryable = self.retryable if retryable is None else retryable
        self.status = status
        self.job = job
        self.retry_after_seconds: float | None = None
        self.fields: tuple[FieldProblem, ...] = ()


class RequestError(ClientError):
    """The caller must change something."""

    code = "invalid_request"


class ImageError(RequestError):
    """The image is too large, broken, or none in a format that is accepted; found at the door or by the worker."""

    code = "image_corrupt"


class UrlError(RequestError):
    """A URL leads where Tidegate does not go, or brought no image."""

    code = "url_not_allowed"


class NotFound(RequestError):
    """There is no such job, model or path; a job that ended long ago is no longer kept."""

    code = "not_found"


class NotAuthorized(RequestError):
    """The API key is missing or wrong."""

    code = "unauthorized"


class Conflict(RequestError):
    """The job is over, so there is nothing left to cancel; or the idempotency key stands for another request."""

    code = "conflict"


class ThrottledError(RequestError):
    """This caller sends more than its share, or too slowly; the same may go well later."""

    code = "throttled"
    retryable = True


class UnavailableError(ClientError):
    """Tidegate, or a part of it, cannot serve now; nothing was accepted."""

    code = "unavailable"
    retryable = True


class InferenceError(ClientError):
    """The job failed for a cause that is not its image's."""

    code = "inference_failed"


class JobCanceled(ClientError):
    """The job was canceled."""

    code = "canceled"


class JobExpired(ClientError):
    """The job's deadline passed before it had a result."""

    code = "expired"


class ServerError(ClientError):
    """A bug on the other side, or what answered is not Tidegate's API."""

    code = "internal_error"


class ApiUnreachable(ClientError):
    """Nothing answers at the address, or the connection broke."""

    code = "unreachable"
    retryable = True


class WaitTimeout(ClientError):
    """The job has not ended within the time that was given; it goes on, and can be waited for again."""

    code = "wait_timeout"
    retryable = True


#: Which class each code of the API is.
CLASSES: Mapping[str, type[ClientError]] = MappingProxyType(
    {
        **dict.fromkeys(("invalid_request", "invalid_field", "method_not_allowed"), RequestError),
        **dict.fromkeys(("image_too_large", "unsupported_format", "image_corrupt", "invalid_base64"), ImageError),
        **dict.fromkeys(
            (
                "url_not_allowed",
                "url_unreachable",
                "url_timeout",
                "url_status",
                "url_too_many_redirects",
                "url_too_large",
                "url_not_an_image",
                "outbound_failed",
            ),
            UrlError,
        ),
        **dict.fromkeys(("job_not_found", "model_not_found", "delivery_not_found", "not_found"), NotFound),
        **dict.fromkeys(("unauthorized", "forbidden"), NotAuthorized),
        **dict.fromkeys(("job_finished", "idempotency_key_reused"), Conflict),
        **dict.fromkeys(("throttled", "rate_limited", "upload_timeout"), ThrottledError),
        **dict.fromkeys(
            (
                "unavailable",
                "queue_full",
                "no_models_yet",
                "store_unavailable",
                "shutting_down",
                "uploads_full",
                "deadline_unreachable",
            ),
            UnavailableError,
        ),
        **dict.fromkeys(
            (
                "inference_failed",
                "inference_timeout",
                "model_unreachable",
                "model_overloaded",
                "model_not_available",
                "model_failed",
                "model_rejected_input",
                "model_output_invalid",
                "model_contract_broken",
                "worker_lost",
                "image_lost",
            ),
            InferenceError,
        ),
        "internal_error": ServerError,
    }
)

#: Of an answer whose code is new to us, or that has none.
_BY_STATUS: Mapping[int, type[ClientError]] = MappingProxyType(
    {
        401: NotAuthorized,
        403: NotAuthorized,
        404: NotFound,
        408: ThrottledError,
        409: Conflict,
        429: ThrottledError,
        502: UnavailableError,
        503: UnavailableError,
        504: UnavailableError,
    }
)


def error_from_answer(answer: httpx.Response) -> ClientError:
    """The error that an answer of another status than 2xx stands for."""
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        problem = Problem(code="", detail=f"{answer.request.url.host} answered {answer.status_code} without a reason.")
    error = error_from_problem(problem, status=answer.status_code)
    error.retry_after_seconds = retry_after_seconds(answer)
    return error


def error_from_problem(problem: Problem, *, status: int) -> ClientError:
    """The error that a refusal stands for: of a whole request, or of one image of many."""
    kind = CLASSES.get(problem.code) or _kind_of_status(status)
    error = kind(problem.detail or problem.title, code=problem.code or None, status=status)
    error.fields = problem.errors or ()
    return error


def error_from_job(job: JobState) -> ClientError | None:
    """Why a job has no result; None where it has one."""
    if job.result is not None:
        return None
    if not job.ended:
        return WaitTimeout(f"Job {job.id} is still {job.status}.", job=job)
    if job.status == JobCanceled.code:
        return JobCanceled("The job was canceled.", job=job)
    if job.status == JobExpired.code:
        return JobExpired("The job's deadline passed before it had a result.", job=job)
    reason = job.error or JobError(code="", message=f"The job ended as {job.status}, without a result.")
    kind = CLASSES.get(reason.code, InferenceError)
    return kind(reason.message, code=reason.code or None, retryable=reason.retryable, job=job)


def retry_after_seconds(answer: httpx.Response) -> float | None:
    """What ``Retry-After`` says, in seconds from now; None where it says nothing that can be read.

    Source: RFC 9110, section 10.2.3: a number of seconds, or a date.
    """
    text = answer.headers.get("retry-after", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _kind_of_status(status: int) -> type[ClientError]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return RequestError if 400 <= status < 500 else ServerError  # noqa: PLR2004 - the client errors of HTTP
