"""Two thousand clients that wait on one process: what they cost, and that each has its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
import redis

from tests.integration.api_client import ApiServer, eventually, ready_model, report
from tests.integration.ledger_probe import LedgerProbe, success
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "m"
CROWD = 2000
MEMORY_LIMIT = 150 * 1024 * 1024
#: A server that does nothing but wait uses less of a processor than this, looked at for so long.
RESTING_SHARE = 0.2
LOOK_SECONDS = 0.5
#: Jobs that a worker ends at a time.
BATCH = 50


@pytest.fixture
def server(settings: Settings, tmp_path: Path, redis_client: redis.Redis) -> Iterator[ApiServer]:
    """The API as it is deployed."""
    report(settings, ready_model(MODEL))
    server = ApiServer(settings, tmp_path).start()
    try:
        yield server
    finally:
        server.stop()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(server: ApiServer, path: str) -> Connection:
    """A client that has asked."""
    reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(server.url).port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n".encode())
    await writer.drain()
    return reader, writer


async def resting(server: ApiServer) -> None:
    """Until the server has seen to every request so far: it uses almost no processor any more."""
    spent = server.cpu_seconds()
    async with asyncio.timeout(30):
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            before, spent = spent, server.cpu_seconds()
            if spent - before < RESTING_SHARE * LOOK_SECONDS:
                return


@asynccontextmanager
async def crowd(server: ApiServer, paths: list[str]) -> AsyncIterator[list[asyncio.StreamReader]]:
    """A client for each path, all of which wait; gives where their answers will be read."""
    connections: list[Connection] = []
    try:
        for start in range(0, len(paths), BATCH):
            connections += await asyncio.gather(*(connect(server, path) for path in paths[start : start + BATCH]))
        await eventually(lambda: server.open_files() > len(paths), within_seconds=30)
        await resting(server)
        yield [reader for reader, _ in connections]
    finally:
        for _, writer in connections:
            writer.close()


@pytest.mark.parametrize("what", ["?wait=60", "/events"], ids=["long polls", "streams"])
async def test_a_crowd_is_small_and_nobody_is_forgotten(
    server: ApiServer, settings: Settings, probe: LedgerProbe, redis_client: redis.Redis, what: str
) -> None:
    """One subscription, under 150 MB, and every one of them hears of the end of its own job within seconds."""
    ids = [ticket.job_id for _ in range(CROWD // BATCH) for ticket in probe.accept(BATCH)]
    async with crowd(server, [f"/v1/jobs/{job_id}{what}" for job_id in ids]) as readers:
        channel = f"{settings.key_prefix}ended"
        assert redis_client.pubsub_numsub(channel) == [(channel.encode(), 1)]
        resident = server.resident_bytes()
        answers = asyncio.gather(*(reader.read() for reader in readers))
        for start in range(0, CROWD, BATCH):
            batch = ids[start : start + BATCH]
            probe.claim("worker", *batch)
            probe.ledger.run(probe.commands.complete("worker", [success(job_id) for job_id in batch]))
            await asyncio.sleep(0)
        async with asyncio.timeout(30):
            texts = [answer.decode() for answer in await answers]
    assert [job_id in text and '"status":"succeeded"' in text for text, job_id in zip(texts, ids, strict=True)] == [
        True
    ] * CROWD
    assert resident < MEMORY_LIMIT, f"{resident / 1e6:.0f} MB"
