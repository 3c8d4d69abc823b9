"""Which error a client meets for what went wrong."""

from __future__ import annotations

import email.utils
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from api.errors import KINDS
from tidegate import errors as server
from tidegate.client import ClientError, documents
from tidegate.client import errors as client

#: What never reaches a client: it stops a process at its start.
INWARD = {server.SettingsError.code}
REQUEST = httpx.Request("GET", "http://api.test/v1/jobs/1")


def codes_of(root: type[server.TidegateError]) -> Iterator[str]:
    """The codes of a class and all below it; the embedded stack has errors of its own, which reach no client."""
    if root.__module__ == server.__name__:
        yield root.code
    for child in root.__subclasses__():
        yield from codes_of(child)


def problem(status: int, **fields: Any) -> httpx.Response:
    """An answer that tells of a problem, as the API forms it."""
    document = {"type": "about:blank", "title": "Bad", "status": status, "detail": "It is bad.", **fields}
    return httpx.Response(status, json=document, request=REQUEST)


def job(**fields: Any) -> documents.JobState:
    """A job that has ended."""
    moment = datetime.now(UTC)
    return documents.JobState(id="1", model="m", created_at=moment, finished_at=moment, **fields)


def test_every_code_of_tidegate_has_a_class_of_its_family() -> None:
    """No code that the API or a job may tell is unknown to the client that ships with it."""
    assert set(codes_of(server.TidegateError)) - INWARD <= client.CLASSES.keys()


def test_class_of_a_code_agrees_with_its_status() -> None:
    """What the API answers with a 4xx is the caller's fault here too, and a 503 is an outage that passes."""
    for error, kind in KINDS.items():
        fault = client.RequestError if kind.status < 500 else client.ServerError
        expected = client.UnavailableError if kind.status == 503 else fault
        assert issubclass(client.CLASSES[error.code], expected), error.code


def test_problem_keeps_code_status_sentence_and_fields() -> None:
    """All that the API says of a refusal is there for programs and people."""
    fields = [{"detail": "Input should be greater than 0", "pointer": "#/top_k"}]
    error = client.error_from_answer(problem(422, code="invalid_field", errors=fields))
    assert type(error) is client.RequestError
    assert (error.code, error.status, str(error)) == ("invalid_field", 422, "It is bad.")
    assert [(field.pointer, field.detail) for field in error.fields] == [("#/top_k", "Input should be greater than 0")]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (400, client.RequestError),
        (401, client.NotAuthorized),
        (403, client.NotAuthorized),
        (404, client.NotFound),
        (409, client.Conflict),
        (418, client.RequestError),
        (429, client.ThrottledError),
        (500, client.ServerError),
        (502, client.UnavailableError),
        (503, client.UnavailableError),
        (504, client.UnavailableError),
        (302, client.ServerError),
    ],
)
def test_unknown_code_survives_and_is_classed_by_its_status(status: int, expected: type[ClientError]) -> None:
    """A newer API does not break an older client: the code is there, and its class is the nearest that there is."""
    error = client.error_from_answer(problem(status, code="brand_new"))
    assert type(error) is expected
    assert error.code == "brand_new"


@pytest.mark.parametrize("body", [b"", b"<html>Bad Gateway</html>", b"[]", b'{"detail": "no code"}', b"\xff"])
def test_answer_that_is_no_problem_is_told_by_its_status(body: bytes) -> None:
    """A proxy's page becomes an error of the right class, without its text."""
    error = client.error_from_answer(httpx.Response(502, content=body, request=REQUEST))
    assert type(error) is client.UnavailableError
    assert (error.code, str(error)) == ("unavailable", "api.test answered 502 without a reason.")


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0.0), ("7", 7.0), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("²", None)]
)
def test_retry_after_in_seconds_is_read(text: str, expected: float | None) -> None:
    """A number of seconds is taken, and what is none is as good as nothing."""
    answer = httpx.Response(503, headers=[(b"Retry-After", text.encode())])
    assert client.retry_after_seconds(answer) == expected


def test_retry_after_as_a_date_is_read() -> None:
    """A proxy may answer with a date: what counts is how far it is away, and never less than nothing."""
    for offset, least, most in ((30, 25.0, 30.0), (-30, 0.0, 0.0)):
        moment = email.utils.format_datetime(datetime.now(UTC) + timedelta(seconds=offset), usegmt=True)
        seconds = client.retry_after_seconds(httpx.Response(503, headers={"Retry-After": moment}))
        assert seconds is not None
        assert least <= seconds <= most


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        ("failed", "image_corrupt", client.ImageError),
        ("failed", "url_timeout", client.UrlError),
        ("failed", "worker_lost", client.InferenceError),
        ("failed", "brand_new", client.InferenceError),
        ("canceled", None, client.JobCanceled),
        ("expired", None, client.JobExpired),
        ("vanished", None, client.InferenceError),
    ],
)
def test_job_without_a_result_is_an_error_of_its_codes_family(
    status: str, code: str | None, expected: type[ClientError]
) -> None:
    """An image that the worker finds broken is the same error as one that the API refuses, and carries its job."""
    reason = {"code": code, "message": "It failed.", "retryable": True} if code else None
    ended = job(status=status, error=reason)
    error = client.error_from_job(ended)
    assert type(error) is expected
    assert error.job is ended
    if code:
        assert (error.code, str(error), error.retryable) == (code, "It failed.", True)


def test_job_with_a_result_is_no_error() -> None:
    """What a job met before it succeeded is not held against it."""
    result = {"predictions": [{"class_id": 1}]}
    assert client.error_from_job(job(status="succeeded", result=result)) is None


def test_documents_keep_what_a_newer_api_adds() -> None:
    """A field that this client does not know is neither refused nor lost."""
    text = json.dumps({"name": "m", "state": "ready", "license": "MIT"})
    model = documents.Model.model_validate_json(text)
    assert json.loads(model.model_dump_json())["license"] == "MIT"
