"""The API is told to stop: readiness says so first, and whoever was being served is served."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from tests.integration.api_client import PNG, ApiServer, eventually, ready_model, report
from tests.integration.ledger_probe import LedgerProbe
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

DRAIN_SECONDS = 2.0
#: No test lasts as long as this drain: its server ends by a second signal.
LONG_DRAIN_SECONDS = 90.0
#: By when a server that is to end has ended: a limit against hangs.
ENDED_SECONDS = 20.0


@contextmanager
def serving(settings: Settings, folder: Path, *, drain_seconds: float) -> Iterator[ApiServer]:
    """The API with one model, while the block runs."""
    report(settings, ready_model("served"))
    server = ApiServer(settings.model_copy(update={"api_drain_seconds": drain_seconds}), folder).start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def server(settings: Settings, tmp_path: Path, redis_client: redis.Redis) -> Iterator[ApiServer]:
    """The API, which drains for a moment."""
    with serving(settings, tmp_path, drain_seconds=DRAIN_SECONDS) as server:
        yield server


@pytest.fixture
def long_drained(settings: Settings, tmp_path: Path, redis_client: redis.Redis) -> Iterator[ApiServer]:
    """The API, which drains for longer than any test lasts."""
    with serving(settings, tmp_path, drain_seconds=LONG_DRAIN_SECONDS) as server:
        yield server


@pytest.fixture
async def api(server: ApiServer) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it."""
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        yield client


@asynccontextmanager
async def half_an_upload(server: ApiServer) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which half of an image has been sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: api\r\nContent-Type: image/png\r\nContent-Length: {len(PNG)}\r\n\r\n"
    writer.write(head.encode() + PNG[:30])
    await writer.drain()
    try:
        yield reader, writer
    finally:
        writer.close()


async def test_readiness_fails_while_the_server_still_serves(long_drained: ApiServer) -> None:
    """After SIGTERM a load balancer is told to go elsewhere, while new jobs are still taken."""
    async with httpx.AsyncClient(base_url=long_drained.url, timeout=30) as api:
        assert (await api.get("/readyz")).status_code == 200
        long_drained.send(signal.SIGTERM)
        await eventually(lambda: "api.draining" in long_drained.log.read_text())
        refusal = await api.get("/readyz")
        assert (refusal.status_code, refusal.json()["code"]) == (503, "shutting_down")
        assert (await api.get("/healthz")).status_code == 200
    async with httpx.AsyncClient(base_url=long_drained.url) as another:
        assert (await another.post("/v1/jobs", content=PNG)).status_code == 202


async def test_server_ends_when_its_drain_is_over(server: ApiServer) -> None:
    """By itself, and not before."""
    told = time.monotonic()
    server.send(signal.SIGTERM)
    assert await asyncio.to_thread(server.wait, ENDED_SECONDS) is not None
    assert time.monotonic() - told >= DRAIN_SECONDS


async def test_upload_in_hand_is_finished(server: ApiServer, probe: LedgerProbe) -> None:
    """An image whose second half comes after the server has stopped listening is accepted, and its client told."""
    async with half_an_upload(server) as (reader, writer):
        await asyncio.sleep(0.2)  # so that the server has begun to read
        server.send(signal.SIGTERM)
        await eventually(lambda: "Shutting down" in server.log.read_text(), within_seconds=ENDED_SECONDS)
        writer.write(PNG[30:])
        async with asyncio.timeout(ENDED_SECONDS):
            answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 202")
    (job_key,) = (key for key in probe.all_keys() if key.startswith("job:"))
    assert probe.trace(job_key.removeprefix("job:")).image == PNG
    assert await asyncio.to_thread(server.wait, ENDED_SECONDS) is not None


async def test_waiting_client_is_answered_with_what_is_known(server: ApiServer, api: httpx.AsyncClient) -> None:
    """Neither a long poll nor a submission that waits is cut off: each is told how its job stands."""
    accepted = await api.post("/v1/jobs", content=PNG)
    polls = [
        asyncio.create_task(api.get(accepted.headers["location"], params={"wait": 60})),
        asyncio.create_task(api.post("/v1/jobs", content=PNG, headers={"Prefer": "wait=60"})),
    ]
    await asyncio.sleep(0.3)  # so that both wait
    server.send(signal.SIGTERM)
    async with asyncio.timeout(ENDED_SECONDS):
        poll, submission = await asyncio.gather(*polls)
    assert (poll.status_code, poll.json()["status"]) == (200, "queued")
    assert (submission.status_code, submission.json()["status"]) == (202, "queued")


async def test_second_signal_does_not_wait(long_drained: ApiServer) -> None:
    """Who asks twice is in a hurry."""
    long_drained.send(signal.SIGTERM)
    await eventually(lambda: "api.draining" in long_drained.log.read_text())
    long_drained.send(signal.SIGTERM)
    assert await asyncio.to_thread(long_drained.wait, ENDED_SECONDS) is not None
