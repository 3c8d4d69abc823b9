"""What each error means over HTTP, and the one form in which every error leaves: RFC 9457 problems.

This module alone knows HTTP statuses. Its handlers also speak for FastAPI and Starlette, so that a wrong path,
a wrong method or a body that is too large looks like every other refusal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.fields import find_problems
from api.schemas import FieldProblem, Problem
from tidegate.errors import (
    DeadlineUnreachable,
    DeliveryNotFound,
    IdempotencyKeyReused,
    ImageCorrupt,
    ImageTooLarge,
    InternalError,
    InvalidBase64,
    InvalidField,
    InvalidRequest,
    JobFinished,
    JobNotFound,
    ModelNotFound,
    NoModelsYet,
    QueueFull,
    RateLimited,
    RequestError,
    ShuttingDown,
    StoreUnavailable,
    ThrottledError,
    TidegateError,
    Unauthorized,
    UnavailableError,
    UnsupportedFormat,
    UploadsFull,
    UploadTimeout,
    UrlNotAllowed,
)
from tidegate.store import translate

log = structlog.get_logger(__name__)

#: Where a request's scope keeps headers that every answer must carry, an error too.
QUOTA_HEADERS = "tidegate.quota_headers"
PROBLEM_MEDIA_TYPE = "application/problem+json"
#: Without a registered type a problem is told apart by its ``code``, and its title is the phrase of its status.
#: Source: RFC 9457, section 4.2.1.
NO_TYPE = "about:blank"
#: Source: draft-ietf-httpapi-ratelimit-headers, "Problem Types".
REDUCED_CAPACITY = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
QUOTA_EXCEEDED = "https://iana.org/assignments/http-problem-types#quota-exceeded"

#: When to come back where nothing better is known, in seconds.
DEFAULT_RETRY_SECONDS = 5
#: A problem stays under 2 KB: so many bytes of its sentence, so many fields, and of each so much, are told.
MAX_DETAIL_BYTES = 400
MAX_FIELD_PROBLEMS = 5
MAX_FIELD_DETAIL_BYTES = 160


@dataclass(frozen=True)
class Kind:
    """How a class of errors is told over HTTP: status, title and problem type."""

    status: int
    title: str
    type: str = NO_TYPE


_BAD_REQUEST = Kind(400, "Bad Request")
_NOT_FOUND = Kind(404, "Not Found")
_UNPROCESSABLE = Kind(422, "Unprocessable Content")
_REDUCED_CAPACITY = Kind(503, "Temporary Reduced Capacity", REDUCED_CAPACITY)
_BUG = Kind(500, "Internal Server Error")

#: Every error that can end a request. What goes wrong in a worker stands in the job instead.
KINDS: Mapping[type[TidegateError], Kind] = {
    RequestError: _BAD_REQUEST,
    InvalidRequest: _BAD_REQUEST,
    InvalidField: _UNPROCESSABLE,
    InvalidBase64: _UNPROCESSABLE,
    ImageTooLarge: Kind(413, "Content Too Large"),
    UnsupportedFormat: Kind(415, "Unsupported Media Type"),
    ImageCorrupt: _UNPROCESSABLE,
    ModelNotFound: _NOT_FOUND,
    JobNotFound: _NOT_FOUND,
    JobFinished: Kind(409, "Conflict"),
    DeliveryNotFound: _NOT_FOUND,
    Unauthorized: Kind(401, "Unauthorized"),
    ThrottledError: Kind(429, "Too Many Requests"),
    RateLimited: Kind(429, "Quota Exceeded", QUOTA_EXCEEDED),
    IdempotencyKeyReused: _UNPROCESSABLE,
    UploadTimeout: Kind(408, "Request Timeout"),
    UrlNotAllowed: _UNPROCESSABLE,
    UnavailableError: _REDUCED_CAPACITY,
    QueueFull: _REDUCED_CAPACITY,
    DeadlineUnreachable: _REDUCED_CAPACITY,
    UploadsFull: _REDUCED_CAPACITY,
    NoModelsYet: _REDUCED_CAPACITY,
    ShuttingDown: _REDUCED_CAPACITY,
    StoreUnavailable: _REDUCED_CAPACITY,
    InternalError: _BUG,
}

#: What FastAPI and Starlette refuse by themselves: code and sentence by status. Theirs may quote the request.
_FRAMEWORK_REFUSALS: Mapping[int, tuple[str, str, str]] = {
    400: ("Bad Request", "invalid_request", "The body of the request cannot be read."),
    404: ("Not Found", "not_found", "There is nothing at this path."),
    405: ("Method Not Allowed", "method_not_allowed", "This path does not take this method."),
}


def kind_of(error: type[TidegateError]) -> Kind:
    """How errors of a class are told; one of a class that should never get here is a bug."""
    return KINDS.get(error, _BUG)


def problem_response(error: TidegateError) -> Response:
    """The answer that tells of an error."""
    kind = kind_of(type(error))
    if kind is _BUG:
        error = InternalError("Something went wrong here; it is logged and not your fault.")
    return _render(problem_of(error), headers=_headers(kind, error))


def problem_of(error: TidegateError) -> Problem:
    """The body that tells of an error."""
    problems = error.problems if isinstance(error, InvalidField) else ()
    policies = error.policies if isinstance(error, RateLimited) else ()
    return _problem(kind_of(type(error)), error.code, str(error), problems=problems, policies=policies)


def _headers(kind: Kind, error: TidegateError) -> dict[str, str]:
    headers = {}
    if kind is _REDUCED_CAPACITY or isinstance(error, RateLimited):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_seconds or DEFAULT_RETRY_SECONDS)))
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = "Bearer"
    if isinstance(error, UploadTimeout):
        # What is left of the body would be taken for the next request.
        headers["Connection"] = "close"
    return headers


def _problem(
    kind: Kind, code: str, detail: str, *, problems: Sequence[tuple[str, str]] = (), policies: Sequence[str] = ()
) -> Problem:
    return Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=_cut(detail, MAX_DETAIL_BYTES),
        code=code,
        errors=[
            FieldProblem(detail=_cut(text, MAX_FIELD_DETAIL_BYTES), pointer=pointer)
            for pointer, text in problems[:MAX_FIELD_PROBLEMS]
        ]
        or None,
        violated_policies=list(policies) or None,
    )


def _render(problem: Problem, *, headers: Mapping[str, str] | None = None) -> Response:
    body = problem.model_dump_json(exclude_none=True, by_alias=True)
    return Response(body, problem.status, headers=headers, media_type=PROBLEM_MEDIA_TYPE)


def _cut(text: str, max_bytes: int) -> str:
    return text.encode()[:max_bytes].decode(errors="ignore")


def install_handlers(app: FastAPI) -> None:
    """Make every error of the application leave as a problem."""
    app.add_exception_handler(TidegateError, _tell_ours)
    app.add_exception_handler(RedisError, _tell_redis)
    app.add_exception_handler(RequestValidationError, _tell_validation)
    app.add_exception_handler(HTTPException, _tell_framework)
    app.add_exception_handler(ClientDisconnect, _tell_nobody)
    app.add_middleware(CrashBarrier)


async def _tell_ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, TidegateError)
    kind = kind_of(type(error))
    facts = {"code": error.code, "status": kind.status, "route": _route(request.scope)}
    if kind is _BUG:
        log.error("request.crashed", exc_info=error, **facts)
    else:
        level = log.warning if isinstance(error, UnavailableError) else log.info
        level("request.refused", reason=str(error), **facts)
    response = problem_response(error)
    response.headers.update(request.scope.get(QUOTA_HEADERS, {}))
    return response


async def _tell_redis(request: Request, error: Exception) -> Response:
    assert isinstance(error, RedisError)
    return await _tell_ours(request, translate(error))


async def _tell_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = find_problems([{**found, "loc": found["loc"][1:]} for found in error.errors()])
    return await _tell_ours(request, InvalidField("Some parameters are not right.", problems=problems))


async def _tell_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title, code, detail = _FRAMEWORK_REFUSALS.get(error.status_code, _FRAMEWORK_REFUSALS[400])
    status = error.status_code if error.status_code in _FRAMEWORK_REFUSALS else 400
    log.info("request.refused", code=code, status=status, route=_route(request.scope), reason=detail)
    return _render(_problem(Kind(status, title), code, detail), headers=error.headers)


async def _tell_nobody(request: Request, error: Exception) -> Response:
    """The client has gone; whatever is answered is dropped by the server."""
    del error
    log.info("request.abandoned", route=_route(request.scope))
    return problem_response(InvalidRequest("The client closed the connection."))


def _route(scope: Scope) -> str:
    """The path as it is written in the code: one that a client made up is no business of a log."""
    path = getattr(scope.get("route"), "path", "unknown")
    return f"{scope['method']} {path}"


class CrashBarrier:
    """Turns a bug into a plain 500: logged here once with its traceback, and told without it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and answer in the application's place when it crashes."""
        started = False

        async def note_start(message: Message) -> None:
            nonlocal started
            started = started or message["type"] == "http.response.start"
            await send(message)

        try:
            await self._app(scope, receive, note_start)
        except Exception:
            # Half an answer cannot be mended: the server logs the error and drops the connection.
            if scope["type"] != "http" or started:
                raise
            facts: dict[str, Any] = {"code": InternalError.code, "status": _BUG.status, "route": _route(scope)}
            log.exception("request.crashed", **facts)
            await problem_response(InternalError("bug"))(scope, receive, send)
