"""What clients see while Redis is frozen, gone, full or read-only: 503 in time, and all well again afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
import redis
from structlog.testing import capture_logs

from tests.integration.api_client import PNG, eventually, ready_model, report, services_of, serving
from tests.integration.redis_server import RedisServer
from tidegate.jobs import new_job_id
from tidegate.settings import Settings, load_settings
from tidegate.store import connect

pytestmark = pytest.mark.anyio

MODEL = "suffering"
#: The promise to clients, in seconds.
TOLD_WITHIN = 3.0
#: Between two looks at the health of the process, in seconds.
LOOK_SECONDS = 0.05
PLACE = f"/v1/jobs/{new_job_id()}"

REQUESTS: dict[str, Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]] = {
    "submit": lambda api: api.post("/v1/jobs", content=PNG),
    "submit and wait": lambda api: api.post("/v1/jobs", content=PNG, headers={"prefer": "wait=30"}),
    "get": lambda api: api.get(PLACE),
    "get and wait": lambda api: api.get(PLACE, params={"wait": 30}),
    "cancel": lambda api: api.delete(PLACE),
    "models": lambda api: api.get("/v1/models"),
    "readiness": lambda api: api.get("/readyz"),
}


@pytest.fixture
def own_settings(own_redis: RedisServer, clean_environment: None) -> Settings:
    """The defaults over a Redis that the test may break."""
    settings = load_settings({}, redis_url=own_redis.url)
    report(settings, ready_model(MODEL))
    return settings


@pytest.fixture
async def api(own_settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API over it; it has served, so that its connections are open and its catalogue is read."""
    async with serving(own_settings) as client:
        assert (await client.post("/v1/jobs", content=PNG)).status_code == 202
        yield client


def check_outage(response: httpx.Response) -> None:
    """The answer is the one for an outage."""
    assert (response.status_code, response.json()["code"]) == (503, "store_unavailable")
    assert response.json()["type"].endswith("#temporary-reduced-capacity")
    assert int(response.headers["retry-after"]) >= 1


async def check_all_told(api: httpx.AsyncClient) -> None:
    """Every kind of request, ten of each at once, is told of the outage in time; meanwhile the process is healthy.

    The time is counted in looks, which share the event loop with the limits that the API sets itself: while a busy
    machine lets neither run, none is counted.
    """
    await forget_the_catalogue()
    asking = [asyncio.create_task(_ask(api, name)) for name in REQUESTS for _ in range(10)]
    looks = 0
    with beating() as beats:
        while not all(task.done() for task in asking):
            assert (await api.get("/healthz")).status_code == 200
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)
    for response in await asyncio.gather(*asking):
        check_outage(response)
    assert looks < TOLD_WITHIN / LOOK_SECONDS
    # A call that blocks the event loop would let a thread go on alone, by a hundred beats or more.
    assert len(beats) < 3 * looks + 20


@contextmanager
def beating() -> Iterator[list[None]]:
    """A thread that adds to a list at the pace of the looks while the block runs."""
    beats: list[None] = []
    over = threading.Event()

    def beat() -> None:
        while not over.wait(LOOK_SECONDS):
            beats.append(None)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield beats
    finally:
        over.set()
        thread.join()


async def check_health_waits_for_nobody(api: httpx.AsyncClient) -> None:
    """The process says that it is well, again and again, while what was asked before still waits for a frozen Redis."""
    await forget_the_catalogue()
    asking = [asyncio.create_task(_ask(api, name)) for name in REQUESTS]
    for _ in range(10):
        assert (await api.get("/healthz")).status_code == 200
    assert not any(task.done() for task in asking)
    for response in await asyncio.gather(*asking):
        check_outage(response)


async def forget_the_catalogue() -> None:
    """It may be a second old, within which the models are still known."""
    await asyncio.sleep(1.1)


async def _ask(api: httpx.AsyncClient, name: str) -> httpx.Response:
    return await REQUESTS[name](api)


async def check_recovered(api: httpx.AsyncClient) -> None:
    """Everything works again, without a restart of the API."""
    deadline = time.monotonic() + 5
    while (await api.get("/readyz")).status_code != 200:
        assert time.monotonic() < deadline, "it is not ready again"
        await asyncio.sleep(0.05)
    accepted = await api.post("/v1/jobs", content=PNG)
    assert accepted.status_code == 202
    assert (await api.get(accepted.headers["location"])).status_code == 200


async def test_a_frozen_redis_is_told_in_time(api: httpx.AsyncClient, own_redis: RedisServer) -> None:
    """A Redis that takes requests and answers none holds nobody."""
    own_redis.pause()
    try:
        await check_health_waits_for_nobody(api)
        await check_all_told(api)
    finally:
        own_redis.resume()
    await check_recovered(api)


async def test_a_killed_redis_is_told_in_time(api: httpx.AsyncClient, own_redis: RedisServer) -> None:
    """And what was accepted before is still there afterwards."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    await asyncio.to_thread(own_redis.kill)
    await check_all_told(api)
    await asyncio.to_thread(own_redis.start)
    await check_recovered(api)
    assert (await api.get(place)).status_code == 200


async def test_the_api_starts_without_redis(own_redis: RedisServer, own_settings: Settings) -> None:
    """It lives, says that it is not ready, and serves once Redis is there."""
    await asyncio.to_thread(own_redis.stop)
    async with serving(own_settings) as api:
        assert (await api.get("/healthz")).status_code == 200
        check_outage(await api.get("/readyz"))
        await asyncio.to_thread(own_redis.start)
        await check_recovered(api)


async def test_an_outage_while_a_submission_waits_does_not_unmake_it(
    api: httpx.AsyncClient, own_redis: RedisServer
) -> None:
    """The job is accepted: its client is told so, and not to submit it again."""
    waiting = asyncio.create_task(api.post("/v1/jobs", content=PNG, headers={"prefer": "wait=20"}))
    await eventually(lambda: services_of(api).waiters.count == 1)
    await asyncio.to_thread(own_redis.kill)
    response = await waiting
    assert (response.status_code, response.json()["status"]) == (202, "queued")
    await asyncio.to_thread(own_redis.start)
    assert (await api.get(response.headers["location"])).status_code == 200


async def test_a_full_redis_refuses_jobs_and_nothing_else(
    api: httpx.AsyncClient, own_redis: RedisServer, own_settings: Settings
) -> None:
    """Submissions are put off; what is there can be read and canceled; with room again all is well."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    with connect(own_settings) as client:
        client.config_set("maxmemory", 1)
        check_outage(await api.post("/v1/jobs", content=PNG))
        assert (await api.get(place)).status_code == 200
        assert (await api.delete(place)).status_code == 200
        client.config_set("maxmemory", 0)
    await check_recovered(api)


async def test_a_read_only_redis_is_an_outage(
    api: httpx.AsyncClient, own_redis: RedisServer, own_settings: Settings
) -> None:
    """After a failover that went to the wrong side, submissions are put off instead of lost."""
    with connect(own_settings) as client:
        client.replicaof("127.0.0.1", "1")
        check_outage(await api.post("/v1/jobs", content=PNG))
        client.replicaof("NO", "ONE")
    await check_recovered(api)


async def test_a_redis_that_forgot_our_scripts_is_no_outage(api: httpx.AsyncClient, own_settings: Settings) -> None:
    """They are loaded again in passing."""
    with connect(own_settings) as client:
        client.script_flush()
        assert (await api.post("/v1/jobs", content=PNG)).status_code == 202


async def test_a_refused_command_is_a_bug_and_not_an_outage(api: httpx.AsyncClient, own_settings: Settings) -> None:
    """A client is not told to come back for what will not pass."""
    with connect(own_settings) as client:
        place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
        client.delete(f"{own_settings.key_prefix}job:{place.rpartition('/')[2]}")
        client.set(f"{own_settings.key_prefix}job:{place.rpartition('/')[2]}", "no hash")
    with capture_logs():
        response = await api.get(place)
    assert (response.status_code, response.json()["code"]) == (500, "internal_error")
    assert "retry-after" not in response.headers


def test_redis_is_really_frozen_by_a_pause(own_redis: RedisServer) -> None:
    """The fault that these tests inject is one."""
    own_redis.pause()
    with pytest.raises(redis.TimeoutError), redis.Redis.from_url(own_redis.url, socket_timeout=0.2) as client:
        client.ping()
    own_redis.resume()
