"""Every error leaves as one small problem that says nothing of what was sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Annotated

import httpx
import pytest
from fastapi import FastAPI, Query
from redis.exceptions import ConnectionError as RedisConnectionError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from structlog.testing import capture_logs

from api.errors import DEFAULT_RETRY_SECONDS, KINDS, PROBLEM_MEDIA_TYPE, install_handlers, problem_response
from tidegate.errors import (
    ImageLost,
    InferenceError,
    InternalError,
    InvalidField,
    ModelContractError,
    ModelNotFound,
    OutboundError,
    QueueFull,
    RequestError,
    SettingsError,
    StoreUnavailable,
    ThrottledError,
    TidegateError,
    UnavailableError,
    WorkerLost,
)

pytestmark = pytest.mark.anyio

SECRET = "sw0rdfish"
#: What can only happen in a worker, or before a process serves.
ELSEWHERE = (InferenceError, OutboundError, ModelContractError, WorkerLost, ImageLost, SettingsError)


def descendants(cls: type[TidegateError]) -> Iterator[type[TidegateError]]:
    """The classes below, at any depth, that the API can know: not those of the command line."""
    for child in cls.__subclasses__():
        if child.__module__ == "tidegate.errors" or child.__module__.startswith("api."):
            yield child
            yield from descendants(child)


def test_every_error_is_mapped_or_happens_elsewhere() -> None:
    """An error class that is added must be given a status, or be said not to reach the API."""
    unmapped = {error for error in descendants(TidegateError) if error not in KINDS}
    assert {error for error in unmapped if not issubclass(error, ELSEWHERE)} == set()


def test_no_error_that_happens_elsewhere_is_mapped() -> None:
    """What goes wrong in a worker stands in the job, which is answered with 200."""
    assert [error for error in KINDS if issubclass(error, ELSEWHERE)] == []


@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.__name__)
def test_the_status_says_whose_fault_it_is(error: type[TidegateError]) -> None:
    """4xx for what the caller must change, 503 for what passes, 500 for a bug."""
    status = KINDS[error].status
    if issubclass(error, RequestError | ThrottledError):
        assert 400 <= status < 500
    elif issubclass(error, UnavailableError):
        assert status == 503
    else:
        assert status == 500


@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.__name__)
def test_a_problem_has_the_members_of_the_rfc(error: type[TidegateError]) -> None:
    """The status in the body is the status of the answer, and the media type is that of problems."""
    response = problem_response(error("Something."))
    problem = httpx.Response(response.status_code, content=bytes(response.body)).json()
    assert response.media_type == PROBLEM_MEDIA_TYPE
    assert problem.keys() == {"type", "title", "status", "detail", "code"}
    assert problem["status"] == response.status_code == KINDS[error].status
    assert problem["code"] == error.code


@pytest.mark.parametrize(
    ("after", "header"), [(None, str(DEFAULT_RETRY_SECONDS)), (0.01, "1"), (2, "2"), (2.01, "3"), (59.5, "60")]
)
def test_what_passes_says_when_to_come_back(after: float | None, header: str) -> None:
    """Retry-After is whole seconds, rounded up, and never nought."""
    assert problem_response(QueueFull("Full.", retry_after_seconds=after)).headers["retry-after"] == header


def test_what_does_not_pass_says_nothing_of_coming_back() -> None:
    """A caller that must change something is not told to wait."""
    assert "retry-after" not in problem_response(ModelNotFound("None.")).headers


def test_a_problem_is_small_whatever_it_tells() -> None:
    """It stays under 2 KB with the longest sentences, and with any number of wrong fields."""
    problems = tuple((f"#/{'f' * 40}", "ü" * 5000) for _ in range(1000))
    response = problem_response(InvalidField("ü" * 5000, problems=problems))
    assert len(response.body) < 2048


@pytest.mark.parametrize("error", [InternalError("SET failed"), SettingsError("secret"), WorkerLost("secret")])
def test_a_bug_is_told_without_its_message(error: TidegateError) -> None:
    """Also an error that should never have got here is one plain sentence."""
    body = bytes(problem_response(error).body)
    assert b'"code":"internal_error"' in body
    assert str(error).encode() not in body


@pytest.fixture
def crashing() -> FastAPI:
    """An application whose routes go wrong in every way there is."""
    app = FastAPI()
    install_handlers(app)
    failures: dict[str, Exception] = {
        "refused": ModelNotFound("No model of that name is served here."),
        "outage": StoreUnavailable("Redis did not answer in time."),
        "redis": RedisConnectionError(f"redis://:{SECRET}@host is gone"),
        "bug": ValueError(SECRET),
        "ours": InternalError("Redis refused a command of ours."),
        "framework": HTTPException(400, SECRET),
        "teapot": HTTPException(418, SECRET),
        "gone": ClientDisconnect(),
    }

    @app.get("/fail/{how}")
    async def fail(how: str) -> None:
        raise failures[how]

    @app.get("/number")
    async def number(value: Annotated[int, Query(le=5)]) -> int:
        return value

    return app


@pytest.fixture
async def client(crashing: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of that application, to which a crash of the application would be a crash of the test."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(crashing), base_url="http://api") as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", f"/{SECRET}", 404, "not_found"),
        ("POST", "/number", 405, "method_not_allowed"),
        ("GET", f"/number?value={SECRET}", 422, "invalid_field"),
        ("GET", "/number?value=6", 422, "invalid_field"),
        ("GET", "/number", 422, "invalid_field"),
        ("GET", "/fail/refused", 404, "model_not_found"),
        ("GET", "/fail/outage", 503, "store_unavailable"),
        ("GET", "/fail/redis", 503, "store_unavailable"),
        ("GET", "/fail/framework", 400, "invalid_request"),
        ("GET", "/fail/teapot", 400, "invalid_request"),
        ("GET", "/fail/bug", 500, "internal_error"),
        ("GET", "/fail/ours", 500, "internal_error"),
    ],
)
async def test_every_failure_leaves_as_a_problem(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str
) -> None:
    """Also those of FastAPI and Starlette, of redis-py, and bugs; and none repeats what it was given."""
    response = await client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert (response.json()["code"], response.json()["status"]) == (code, status)
    assert SECRET not in response.text


async def test_a_wrong_method_is_told_the_right_one(client: httpx.AsyncClient) -> None:
    """The Allow header of Starlette is kept."""
    assert (await client.post("/number")).headers["allow"] == "GET"


async def test_a_wrong_parameter_is_named(client: httpx.AsyncClient) -> None:
    """A client of a GET learns which parameter it is, as one of a POST learns the field."""
    (problem,) = (await client.get("/number?value=6")).json()["errors"]
    assert problem == {"detail": "Input should be less than or equal to 5", "pointer": "#/value"}


@pytest.mark.parametrize("path", ["/fail/bug", "/fail/ours"])
async def test_a_bug_is_logged_once_with_its_traceback(client: httpx.AsyncClient, path: str) -> None:
    """Whoever looks for the cause finds it, and finds it once."""
    with capture_logs() as lines:
        await client.get(path)
    (line,) = lines
    assert line["event"] == "request.crashed"
    assert line["log_level"] == "error"
    assert line["route"] == "GET /fail/{how}"
    assert line["exc_info"]


async def test_a_client_that_is_gone_is_no_error(client: httpx.AsyncClient) -> None:
    """An upload that breaks off is an everyday event, and leaves no error behind."""
    with capture_logs() as lines:
        await client.get("/fail/gone")
    assert [(line["event"], line["log_level"]) for line in lines] == [("request.abandoned", "info")]


async def test_a_path_that_a_client_made_up_is_not_logged(client: httpx.AsyncClient) -> None:
    """Logs hold routes as they are written in the code."""
    with capture_logs() as lines:
        await client.get(f"/{SECRET}")
    assert SECRET not in str(lines)
