"""Hostile and mistaken submissions, on a real Redis: each is refused, and none leaves anything behind."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis
from structlog.testing import capture_logs

from api.errors import PROBLEM_MEDIA_TYPE
from api.forms import MAX_FORM_FIELD_BYTES
from tests.integration.api_client import PNG, PNG_BASE64, ids_in_queue, ready_model, report, serving
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "refusing"
SECRET = "sw0rdfish"
LIMIT = 100_000


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API with one model, and with a low limit for images."""
    report(settings, ready_model(MODEL))
    async with serving(settings.model_copy(update={"max_image_bytes": LIMIT})) as client:
        yield client


def as_json(text: str | bytes) -> dict[str, Any]:
    """A body that says that it is JSON."""
    return {"content": text, "headers": {"content-type": "application/json"}}


def as_form(body: str | bytes, *, charset: str = "", boundary: str = "b") -> dict[str, Any]:
    """A body that says that it is a form."""
    return {"content": body, "headers": {"content-type": f"multipart/form-data; boundary={boundary}{charset}"}}


def part(name: str, content: str, *, filename: str | None = None) -> str:
    """One part of a form, written by hand."""
    file = f'; filename="{filename}"' if filename is not None else ""
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n{content}\r\n'


def png_of(width: int, height: int) -> bytes:
    """The header of a PNG that declares such a size."""
    return PNG[:16] + struct.pack(">II", width, height) + PNG[24:]


JSON_REFUSALS: dict[str, tuple[Any, int, str]] = {
    "empty": ("", 400, "invalid_request"),
    "broken": ('{"image": ', 400, "invalid_request"),
    "an array": ("[]", 400, "invalid_request"),
    "a string": (f'"{SECRET}"', 400, "invalid_request"),
    "null": ("null", 400, "invalid_request"),
    "NaN": ('{"image": NaN}', 400, "invalid_request"),
    "infinity": ('{"image": "", "top_k": Infinity}', 400, "invalid_request"),
    "too deep": ("[" * 100_000, 400, "invalid_request"),
    "too deep but closed": ('{"metadata": ' + "[" * 5000 + "]" * 5000 + "}", 400, "invalid_request"),
    "invalid UTF-8": (b'{"image": "\xff\xfe"}', 400, "invalid_request"),
    "a lone surrogate": ('{"image": "\\ud800"}', 400, "invalid_request"),
    "UTF-16": ('{"image": "x"}'.encode("utf-16"), 400, "invalid_request"),
    "a byte order mark": ('\ufeff{"image": "x"}', 400, "invalid_request"),
    "no image": ("{}", 422, "invalid_field"),
    "image null": ('{"image": null}', 422, "invalid_field"),
    "image a number": ('{"image": 5}', 422, "invalid_field"),
    "image a list": (json.dumps({"image": [PNG_BASE64]}), 422, "invalid_field"),
    "image an object": ('{"image": {}}', 422, "invalid_field"),
    "image a URL": (f'{{"image": "https://{SECRET}"}}', 422, "invalid_base64"),
    "image empty": ('{"image": ""}', 422, "invalid_base64"),
    "image_url a number": ('{"image_url": 5}', 422, "invalid_field"),
    "unknown field": (json.dumps({"image": PNG_BASE64, SECRET: SECRET}), 422, "invalid_field"),
    "wrong priority": (json.dumps({"image": PNG_BASE64, "priority": 11}), 422, "invalid_field"),
    "huge number": ('{"image": "x", "top_k": ' + "9" * 400 + "}", 400, "invalid_request"),
    "large number": ('{"image": "x", "top_k": 99999999999999999999999}', 422, "invalid_field"),
    "huge exponent": ('{"image": "x", "top_k": 1e99999}', 400, "invalid_request"),
    "top_k above the classes": (json.dumps({"image": PNG_BASE64, "top_k": 11}), 422, "invalid_field"),
    "huge metadata": (json.dumps({"image": PNG_BASE64, "metadata": {SECRET: "x" * 5000}}), 422, "invalid_field"),
    "unknown model": (json.dumps({"image": PNG_BASE64, "model": SECRET}), 404, "model_not_found"),
    "a path for a model": (json.dumps({"image": PNG_BASE64, "model": "../x"}), 404, "model_not_found"),
    "text in base64": (json.dumps({"image": base64.b64encode(b"<html>").decode()}), 415, "unsupported_format"),
    "too large": (json.dumps({"image": base64.b64encode(b"x" * (LIMIT + 1)).decode()}), 413, "image_too_large"),
}

FORM_REFUSALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "empty": (as_form(""), 400, "invalid_request"),
    "no boundary": (
        {"content": "x", "headers": {"content-type": "multipart/form-data"}},
        400,
        "invalid_request",
    ),
    "another boundary": (as_form("--c\r\n\r\nx\r\n--c--\r\n"), 400, "invalid_request"),
    "a boundary without end": (as_form("x", boundary="b" * 5000), 400, "invalid_request"),
    "no disposition": (as_form("--b\r\n\r\nx\r\n--b--\r\n"), 400, "invalid_request"),
    "no name": (as_form("--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n"), 400, "invalid_request"),
    "cut off": (as_form(part("image", "x", filename="a")[:30]), 400, "invalid_request"),
    "an endless header": (as_form("--b\r\nX: " + "x" * 90_000 + "\r\n\r\n"), 400, "invalid_request"),
    "no image": ({"files": {}, "data": {"top_k": "1"}, "headers": {}}, 415, "unsupported_format"),
    "only options": (as_form(part("top_k", "1") + "--b--\r\n"), 400, "invalid_request"),
    "image is text": (as_form(part("image", PNG_BASE64) + "--b--\r\n"), 422, "invalid_field"),
    "two images": ({"files": [("image", ("a", PNG)), ("image", ("b", PNG))]}, 400, "invalid_request"),
    "image twice, once as text": (
        as_form(part("image", "x", filename="a") + part("image", "x") + "--b--\r\n"),
        400,
        "invalid_request",
    ),
    "another file": ({"files": {"photo": ("a", PNG)}}, 400, "invalid_request"),
    "2000 parts": (as_form("".join(part(f"p{n}", "x") for n in range(2000)) + "--b--\r\n"), 400, "invalid_request"),
    "an option of 1 MB": (
        {"files": {"image": ("a", PNG)}, "data": {"metadata": "x" * (MAX_FORM_FIELD_BYTES + 1)}},
        400,
        "invalid_request",
    ),
    "unknown option": ({"files": {"image": ("a", PNG)}, "data": {SECRET: "1"}}, 422, "invalid_field"),
    "an option twice": (
        as_form(part("top_k", "1") + part("top_k", "1") + part("image", "x", filename="a") + "--b--\r\n"),
        422,
        "invalid_field",
    ),
    "options in the query": ({"files": {"image": ("a", PNG)}, "params": {"top_k": "1"}}, 422, "invalid_field"),
    "an empty file": ({"files": {"image": ("a", b"")}}, 422, "image_corrupt"),
    "a codec that raises": (
        as_form(part("image", "x", filename="a") + "--b--\r\n", charset="; charset=undefined"),
        400,
        "invalid_request",
    ),
    "a codec of surrogates": (
        as_form(
            part("metadata", '{"a": "\\\\ud800"}') + part("image", "x", filename="a") + "--b--\r\n",
            charset="; charset=unicode_escape",
        ),
        422,
        "invalid_field",
    ),
    "a codec that is none": (
        as_form(part(SECRET, "x") + "--b--\r\n", charset=f"; charset={SECRET}"),
        422,
        "invalid_field",
    ),
    "too large": ({"files": {"image": ("a", PNG + b"x" * LIMIT)}}, 413, "image_too_large"),
}

PLAIN_REFUSALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "nothing": ({"content": b""}, 422, "image_corrupt"),
    "one byte": ({"content": b"x"}, 415, "unsupported_format"),
    "a page": ({"content": b"<html>", "headers": {"content-type": "image/jpeg"}}, 415, "unsupported_format"),
    "SVG": ({"content": b"<svg/>", "headers": {"content-type": "image/svg+xml"}}, 415, "unsupported_format"),
    "PDF": ({"content": b"%PDF-1.7", "headers": {"content-type": "image/png"}}, 415, "unsupported_format"),
    "text": ({"content": PNG, "headers": {"content-type": "text/plain"}}, 415, "unsupported_format"),
    "an HTML form": ({"data": {"image": PNG_BASE64}}, 415, "unsupported_format"),
    "another multipart": ({"content": PNG, "headers": {"content-type": "multipart/mixed"}}, 415, "unsupported_format"),
    "no media type": ({"content": PNG, "headers": {"content-type": SECRET}}, 415, "unsupported_format"),
    "gzip": ({"content": PNG, "headers": {"content-encoding": "gzip"}}, 415, "unsupported_format"),
    "a bomb": ({"content": png_of(12_000, 12_000)}, 413, "image_too_large"),
    "a ribbon": ({"content": png_of(100_000, 1)}, 413, "image_too_large"),
    "no pixels": ({"content": png_of(0, 0)}, 422, "image_corrupt"),
    "too large": ({"content": PNG + b"x" * LIMIT}, 413, "image_too_large"),
    "far too large": ({"content": PNG + b"x" * 4 * LIMIT}, 413, "image_too_large"),
    "unknown option": ({"content": PNG, "params": {SECRET: SECRET}}, 422, "invalid_field"),
    "an option twice": ({"content": PNG, "params": [("top_k", "1"), ("top_k", "1")]}, 422, "invalid_field"),
    "a wrong option": ({"content": PNG, "params": {"top_k": SECRET}}, 422, "invalid_field"),
    "a surrogate in an option": ({"content": PNG, "params": "model=%ED%A0%80"}, 404, "model_not_found"),
}

REFUSALS: dict[str, tuple[dict[str, Any], int, str]] = {
    **{f"json: {name}": (as_json(body), status, code) for name, (body, status, code) in JSON_REFUSALS.items()},
    **{f"form: {name}": case for name, case in FORM_REFUSALS.items()},
    **{f"plain: {name}": case for name, case in PLAIN_REFUSALS.items()},
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_a_bad_submission_is_refused_and_leaves_nothing(
    api: httpx.AsyncClient, settings: Settings, redis_client: redis.Redis, case: str
) -> None:
    """With its own status and code, in a small problem; neither that nor the logs show what was sent."""
    request, status, code = REFUSALS[case]
    with capture_logs() as lines:
        response = await api.post("/v1/jobs", **request)
    assert (response.status_code, response.json()["code"]) == (status, code), response.text
    assert response.headers["content-type"] == PROBLEM_MEDIA_TYPE
    assert response.json()["status"] == status
    assert len(response.content) < 2048
    assert SECRET not in response.text
    assert [(line["event"], line["log_level"]) for line in lines] == [("request.refused", "info")]
    assert SECRET not in str(lines)
    assert ids_in_queue(redis_client, settings, MODEL) == []


@pytest.mark.parametrize(
    ("size", "status"), [(LIMIT - len(PNG), 202), (LIMIT - len(PNG) + 1, 413)], ids=["at the limit", "above"]
)
async def test_the_limit_on_images_is_exact_in_every_form(api: httpx.AsyncClient, size: int, status: int) -> None:
    """The same image passes or not, however it is wrapped, base64 in lines included."""
    image = PNG + b"x" * size
    for form in (
        {"content": image},
        {"files": {"image": ("a", image)}},
        {"json": {"image": base64.b64encode(image).decode()}},
        {"json": {"image": base64.encodebytes(image).decode().replace("\n", "\r\n")}},
    ):
        assert (await api.post("/v1/jobs", **form)).status_code == status


@pytest.mark.parametrize("query", ["wait=-1", "wait=61", "wait=soon", "wait=", f"{SECRET}=1"])
async def test_a_wrong_wait_is_refused(api: httpx.AsyncClient, query: str) -> None:
    """Unlike a preference, a parameter is an order, and must be right."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    response = await api.get(f"{place}?{query}")
    assert (response.status_code, response.json()["code"]) == (422, "invalid_field")
    assert SECRET not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("PUT", "/v1/jobs", 405),
        ("PUT", "/v1/jobs/x", 405),
        ("POST", "/v1/jobs/", 404),
        ("GET", "/v1/models/", 404),
        ("TRACE", "/v1/models", 405),
        ("GET", "/v1/jobs/%2e%2e/%2e%2e/etc", 404),
    ],
)
async def test_a_wrong_path_or_method_is_a_problem(api: httpx.AsyncClient, method: str, path: str, status: int) -> None:
    """There is one form of refusal, and no redirect to a host that a client made up."""
    response = await api.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == PROBLEM_MEDIA_TYPE
