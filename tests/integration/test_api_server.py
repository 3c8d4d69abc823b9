"""The API as it is deployed, a process with uvicorn: what an in-process client cannot show."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.integration.api_client import PNG, ApiServer, eventually, ready_model, report
from tests.integration.ledger_probe import LedgerProbe
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "served"
MEMORY_LIMIT = 120 * 1024 * 1024
#: The variable that says where Python puts temporary files.
TEMPORARY = "TMPDIR"
CHUNK = b"x" * 65_536


@pytest.fixture
def server(
    settings: Settings, tmp_path: Path, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ApiServer]:
    """The API with one model; its temporary files go to a folder of their own."""
    (tmp_path / "uploads").mkdir()
    monkeypatch.setenv(TEMPORARY, str(tmp_path / "uploads"))
    report(settings, ready_model(MODEL))
    server = ApiServer(settings, tmp_path).start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        yield client


def complaints(server: ApiServer) -> list[str]:
    """What its log has of warnings and worse."""
    words = ("Traceback", "Warning", '"warning"', '"error"', "Exception")
    return [line for line in server.log.read_text().splitlines() if any(word in line for word in words)]


def has_ended_by_itself(server: ApiServer) -> bool:
    """Whether a server that was asked to end did so, before it was killed for taking too long."""
    return not server.running and "Application shutdown complete." in server.log.read_text()


def temporary_files() -> list[Path]:
    """What lies where the server puts temporary files."""
    return list(Path(os.environ[TEMPORARY]).iterdir())


async def test_it_is_small_and_stops_without_a_word(server: ApiServer, api: httpx.AsyncClient) -> None:
    """Idle and after some hundred jobs it holds less than 120 MB; asked to stop it does, and nothing complains."""
    assert server.resident_bytes() < MEMORY_LIMIT
    for _ in range(200):
        accepted = await api.post("/v1/jobs", content=PNG)
        assert (await api.get(accepted.headers["location"])).status_code == 200
    assert server.resident_bytes() < MEMORY_LIMIT
    await asyncio.to_thread(server.stop)
    assert has_ended_by_itself(server)
    assert complaints(server) == []


async def test_large_uploads_in_parallel_arrive_whole(
    server: ApiServer, api: httpx.AsyncClient, probe: LedgerProbe
) -> None:
    """Files that are spooled to disk, twenty at a time, each with its own bytes, in every form."""
    images = [PNG + os.urandom(3_000_000) for _ in range(20)]
    forms: list[dict[str, Any]] = [
        {"files": {"image": ("a.png", images[0])}},
        {"content": images[0]},
        {"json": {"image": base64.b64encode(images[0]).decode()}},
    ]
    responses = await asyncio.gather(*(api.post("/v1/jobs", files={"image": ("a.png", image)}) for image in images))
    responses += [await api.post("/v1/jobs", **form) for form in forms]
    assert [response.status_code for response in responses] == [202] * 23
    for response, image in zip(responses, [*images, *[images[0]] * 3], strict=True):
        assert probe.trace(response.json()["id"]).image == image
    assert temporary_files() == []


async def test_an_endless_body_is_cut_off(server: ApiServer) -> None:
    """A body in chunks that never ends is refused soon after the limit, and its connection is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
    writer.write(b"POST /v1/jobs HTTP/1.1\r\nHost: api\r\nTransfer-Encoding: chunked\r\n\r\n")

    async def pour() -> None:
        while True:
            writer.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
            await writer.drain()

    pouring = asyncio.create_task(pour())
    async with asyncio.timeout(10):
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 413")
        assert b"application/problem+json" in head
        await asyncio.wait({pouring})
    assert isinstance(pouring.exception(), OSError)
    assert server.resident_bytes() < 2 * MEMORY_LIMIT
    writer.close()


async def test_a_declared_body_over_the_limit_is_refused_unread(server: ApiServer, api: httpx.AsyncClient) -> None:
    """The refusal is a problem like any other, and the connection goes on."""
    response = await api.post("/v1/jobs", content=b"x" * 30_000_000)
    assert (response.status_code, response.json()["code"]) == (413, "image_too_large")
    assert (await api.get("/healthz")).status_code == 200
    assert server.resident_bytes() < MEMORY_LIMIT


async def test_uploads_that_break_off_leave_nothing(server: ApiServer, api: httpx.AsyncClient) -> None:
    """A hundred clients that leave in the middle cost no error in the log, no file, and no descriptor."""
    await api.post("/v1/jobs", content=PNG)
    descriptors = server.open_files()
    head = (
        b"POST /v1/jobs HTTP/1.1\r\nHost: api\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        b"Content-Length: 5000000\r\n\r\n"
        b'--b\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    )
    address = ("127.0.0.1", httpx.URL(server.url).port)
    for _ in range(100):
        with socket.create_connection(address) as connection:
            connection.sendall(head + CHUNK * 20)
    await eventually(lambda: server.log.read_text().count("request.abandoned") == 100)
    await eventually(lambda: server.open_files() < descriptors + 10)
    assert temporary_files() == []
    assert complaints(server) == []


async def test_a_waiting_client_that_leaves_frees_the_server(
    server: ApiServer, api: httpx.AsyncClient, redis_client: redis.Redis
) -> None:
    """Its wait ends with it, so that a stop need not wait for the rest of a minute."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    address = ("127.0.0.1", httpx.URL(server.url).port)
    connections = [socket.create_connection(address) for _ in range(10)]
    for connection in connections:
        connection.sendall(f"GET {place}?wait=60 HTTP/1.1\r\nHost: api\r\n\r\n".encode())
    await asyncio.sleep(0.2)
    for connection in connections:
        connection.close()
    await eventually(lambda: server.log.read_text().count("request.abandoned") == 10)
    await api.aclose()
    await asyncio.to_thread(server.stop)
    assert has_ended_by_itself(server)
    assert complaints(server) == []


async def test_a_misspelt_setting_stops_the_start(settings: Settings, tmp_path: Path) -> None:
    """The process ends, and says which variable it is."""
    server = ApiServer(settings, tmp_path)
    server._environ = {**(server._environ or {}), "TIDEGATE_REDIS_URI": "redis://elsewhere"}
    with pytest.raises(RuntimeError, match="did you mean TIDEGATE_REDIS_URL"):
        await asyncio.to_thread(server.start)


def test_the_api_needs_neither_numpy_nor_an_imaging_library() -> None:
    """An image of the API alone stays small: what only workers need is not even looked for."""
    program = (
        "import sys; import api.app; "
        "heavy = {'numpy', 'PIL', 'tritonclient', 'grpc', 'onnx'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_the_log_shows_nothing_of_a_query(api: httpx.AsyncClient, server: ApiServer) -> None:
    """Metadata may stand in it; and each submission is one line of JSON, with its job's id."""
    accepted = (await api.post("/v1/jobs", content=PNG, params={"metadata": '{"name": "Mustermann"}'})).json()
    await api.get(accepted["urls"]["get"], params={"wait": 0})
    lines = [json.loads(line) for line in server.log.read_text().splitlines() if accepted["id"] in line]
    assert [(line["event"], line["job_id"], line["level"]) for line in lines] == [
        ("job.accepted", accepted["id"], "info")
    ]
    assert "Mustermann" not in server.log.read_text()
