"""Clients that wait for the end of their jobs, on a real Redis: woken, not polled, on one subscription for all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis
import redis.asyncio
from structlog.testing import capture_logs

from api import waiters as waiters_module
from api.cancellation import end_task
from api.readings import Readings
from api.waiters import Waiters
from tests.integration.api_client import PNG, eventually, ready_model, report, run_job, services_of, serving
from tests.integration.ledger_probe import LedgerProbe
from tests.integration.redis_server import RedisServer
from tidegate.jobs import State, new_job_id
from tidegate.ledger import AsyncLedger, Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect, connect_async

pytestmark = pytest.mark.anyio

MODEL = "waiting"
#: The longest wait that a client may ask for, in seconds.
WAIT_SECONDS = 60
#: By when who is woken has its answer: a limit against hangs, and far from the end of such a wait.
WOKEN_SECONDS = 20.0


@pytest.fixture(autouse=True)
def no_rereading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds by looking again what it was not told."""
    monkeypatch.setattr(waiters_module, "REREAD_SECONDS", 3600)


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API with one model."""
    report(settings, ready_model(MODEL))
    async with serving(settings) as client:
        yield client


def subscribers(client: redis.Redis, settings: Settings) -> int:
    """How many connections listen for ended jobs."""
    ((_, count),) = client.pubsub_numsub(f"{settings.key_prefix}ended")
    return int(count)


async def test_a_waiting_client_is_woken_by_the_end(
    api: httpx.AsyncClient, settings: Settings, ledger: Ledger, redis_client: redis.Redis
) -> None:
    """It has its answer at once, long before its wait is over, and without a hint to poll."""
    await eventually(lambda: subscribers(redis_client, settings) == 1)
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    waiting = asyncio.create_task(api.get(place, params={"wait": WAIT_SECONDS}))
    await eventually(lambda: services_of(api).waiters.count == 1)
    run_job(ledger, place.rpartition("/")[2])
    async with asyncio.timeout(WOKEN_SECONDS):
        response = await waiting
    assert response.json()["status"] == "succeeded"
    assert "retry-after" not in response.headers


async def test_a_job_that_has_ended_is_not_waited_for(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """Its answer comes at once, and an unknown job is not found at once."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    run_job(ledger, place.rpartition("/")[2])
    async with asyncio.timeout(WOKEN_SECONDS):
        assert (await api.get(place, params={"wait": WAIT_SECONDS})).json()["status"] == "succeeded"
        assert (await api.get(f"/v1/jobs/{new_job_id()}", params={"wait": WAIT_SECONDS})).status_code == 404


async def test_a_wait_ends_when_it_is_over(api: httpx.AsyncClient) -> None:
    """A job that has not ended by then is told as it stands, with a hint when to ask again."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    began = time.monotonic()
    async with asyncio.timeout(WOKEN_SECONDS):
        response = await api.get(place, params={"wait": 1})
    assert time.monotonic() - began > 0.9
    assert (response.status_code, response.json()["status"]) == (200, "queued")
    assert response.headers["retry-after"] == "1"


async def test_a_submission_may_wait_for_its_end(
    api: httpx.AsyncClient, ledger: Ledger, redis_client: redis.Redis, settings: Settings
) -> None:
    """With a preference to wait the answer is the finished job, and says that the wish was granted."""
    waiting = asyncio.create_task(api.post("/v1/jobs", content=PNG, headers={"prefer": "respond-async, wait=60"}))
    queue = f"{settings.key_prefix}queued:{MODEL}:normal"
    ((job_id,)) = await eventually(lambda: redis_client.zrange(queue, 0, -1))
    run_job(ledger, job_id.decode())
    async with asyncio.timeout(WOKEN_SECONDS):
        response = await waiting
    assert (response.status_code, response.json()["status"]) == (200, "succeeded")
    assert response.headers["preference-applied"] == "respond-async, wait=60"
    assert response.headers["vary"] == "Prefer"
    assert response.headers["location"] == f"/v1/jobs/{job_id.decode()}"
    assert "retry-after" not in response.headers


async def test_a_submission_that_waited_in_vain_is_accepted(api: httpx.AsyncClient) -> None:
    """When the wait is over the job is as good as without it."""
    response = await api.post("/v1/jobs", content=PNG, headers={"prefer": "wait=1"})
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=1"
    assert response.headers["retry-after"] == "1"
    assert response.json()["queue_position"] == 0


@pytest.mark.parametrize("end", ["cancel", "expire"])
async def test_every_end_wakes(api: httpx.AsyncClient, probe: LedgerProbe, end: str) -> None:
    """Not only a worker's: who waits is told of a cancellation and of a passed deadline as well."""
    place = (await api.post("/v1/jobs", content=PNG, params={"expires_in": 3600})).headers["location"]
    waiting = asyncio.create_task(api.get(place, params={"wait": WAIT_SECONDS}))
    await eventually(lambda: services_of(api).waiters.count == 1)
    if end == "cancel":
        await api.delete(place)
    else:
        probe.pass_deadline(place.rpartition("/")[2])
        probe.sweep(model=MODEL)
    async with asyncio.timeout(WOKEN_SECONDS):
        response = await waiting
    assert response.json()["status"] == {"cancel": "canceled", "expire": "expired"}[end]


async def test_many_waiters_share_one_subscription(
    api: httpx.AsyncClient, settings: Settings, ledger: Ledger, redis_client: redis.Redis
) -> None:
    """Two hundred clients that wait for as many jobs, twice each, cost Redis one listener; and all are woken."""
    places = [(await api.post("/v1/jobs", content=PNG)).headers["location"] for _ in range(200)]
    waiting = [asyncio.create_task(api.get(place, params={"wait": WAIT_SECONDS})) for place in places * 2]
    await eventually(lambda: services_of(api).waiters.count == len(waiting))
    assert subscribers(redis_client, settings) == 1
    channels = {f"{settings.key_prefix}{name}" for name in ("ended", "started")}
    found: Any = redis_client.pubsub_channels(f"{settings.key_prefix}*")
    assert {channel.decode() for channel in found} == channels
    for place in places:
        run_job(ledger, place.rpartition("/")[2])
    async with asyncio.timeout(WOKEN_SECONDS):
        responses = await asyncio.gather(*waiting)
    assert {response.json()["status"] for response in responses} == {"succeeded"}


def _waiters(client: redis.asyncio.Redis, settings: Settings) -> Waiters:
    ledger = AsyncLedger(client, settings)
    return Waiters(client, ledger, Readings(ledger))


class Listening:
    """Waiters that listen, over a client of their own."""

    def __init__(self, settings: Settings) -> None:
        self.client = connect_async(settings)
        self.waiters = _waiters(self.client, settings)


@pytest.fixture
async def listening(settings: Settings) -> AsyncIterator[Listening]:
    """Waiters alone, without an API around them."""
    made = Listening(settings)
    async with asyncio.TaskGroup() as tasks:
        listener = tasks.create_task(made.waiters.listen())
        yield made
        while not listener.done():
            listener.cancel()
            await asyncio.wait({listener}, timeout=0.1)
    await made.client.aclose()


async def test_an_end_between_the_reading_and_the_waiting_is_not_missed(
    listening: Listening, ledger: Ledger, probe: LedgerProbe, settings: Settings, redis_client: redis.Redis
) -> None:
    """The job ends at the very moment at which it was read as unfinished, and its waiter is woken all the same."""
    await eventually(lambda: subscribers(redis_client, settings) == 1)
    (ticket,) = probe.accept()
    read = listening.waiters._ledger.get_many
    reads = 0

    async def read_then_end(job_ids: list[str]) -> object:
        nonlocal reads
        reads += 1
        records = await read(job_ids)
        if reads == 1:
            run_job(ledger, job_ids[0])
            # The message is there before anybody waits for it.
            await asyncio.sleep(0.1)
        return records

    listening.waiters._ledger.get_many = read_then_end  # type: ignore[method-assign, assignment]
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(WOKEN_SECONDS):
        record = await listening.waiters.wait_for_end(ticket.job_id, tenant="", until=loop.time() + WAIT_SECONDS)
    assert record is not None
    assert record.state is State.SUCCEEDED
    assert reads == 2


async def test_nothing_is_left_of_those_who_have_waited(listening: Listening, probe: LedgerProbe) -> None:
    """Whether the wait ended, was broken off, or was for a job that is none."""
    (ticket,) = probe.accept()
    loop = asyncio.get_running_loop()
    await listening.waiters.wait_for_end(ticket.job_id, tenant="", until=loop.time() + 0.05)
    await listening.waiters.wait_for_end(new_job_id(), tenant="", until=loop.time() + WAIT_SECONDS)
    broken_off = asyncio.create_task(
        listening.waiters.wait_for_end(ticket.job_id, tenant="", until=loop.time() + WAIT_SECONDS)
    )
    await eventually(lambda: listening.waiters.count == 1)
    broken_off.cancel()
    await asyncio.wait({broken_off})
    assert listening.waiters.count == 0
    assert listening.waiters._watches == {}


async def test_a_lost_message_is_made_up_for(
    settings: Settings, probe: LedgerProbe, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is not told, because nobody listens, looks again by itself."""
    monkeypatch.setattr(waiters_module, "REREAD_SECONDS", 0.1)
    (ticket,) = probe.accept()
    client = connect_async(settings)
    deaf = _waiters(client, settings)
    rereading = asyncio.create_task(deaf.reread())
    until = asyncio.get_running_loop().time() + WAIT_SECONDS
    waiting = asyncio.create_task(deaf.wait_for_end(ticket.job_id, tenant="", until=until))
    await eventually(lambda: deaf.count == 1)
    run_job(ledger, ticket.job_id)
    async with asyncio.timeout(WOKEN_SECONDS):
        record = await waiting
    assert record is not None
    assert record.state is State.SUCCEEDED
    await end_task(rereading)
    await client.aclose()


async def test_waiters_survive_the_loss_of_their_connection(
    settings: Settings, redis_client: redis.Redis, ledger: Ledger
) -> None:
    """A job that ends while nobody listens is found when somebody does again, and later ends wake as before."""
    report(settings, ready_model(MODEL))
    async with serving(settings) as api:
        await eventually(lambda: subscribers(redis_client, settings) == 1)
        for _ in range(3):
            place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
            waiting = asyncio.create_task(api.get(place, params={"wait": WAIT_SECONDS}))
            await eventually(lambda: services_of(api).waiters.count == 1)
            redis_client.client_kill_filter(_type="pubsub")
            run_job(ledger, place.rpartition("/")[2])
            async with asyncio.timeout(WOKEN_SECONDS):
                response = await waiting
            assert response.json()["status"] == "succeeded"
            await eventually(lambda: subscribers(redis_client, settings) == 1)


async def test_waiters_survive_a_restart_of_redis(own_redis: RedisServer, clean_environment: None) -> None:
    """After an outage the subscription is there again by itself, and wakes."""
    settings = load_settings({}, redis_url=own_redis.url)
    report(settings, ready_model(MODEL))
    async with serving(settings) as api:
        await asyncio.to_thread(own_redis.kill)
        await asyncio.sleep(1)
        await asyncio.to_thread(own_redis.start)
        with connect(settings) as client:
            await eventually(lambda: subscribers(client, settings) == 1)
            place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
            waiting = asyncio.create_task(api.get(place, params={"wait": WAIT_SECONDS}))
            await eventually(lambda: services_of(api).waiters.count == 1)
            run_job(Ledger(client, settings), place.rpartition("/")[2])
        async with asyncio.timeout(WOKEN_SECONDS):
            assert (await waiting).json()["status"] == "succeeded"


async def test_a_silent_connection_is_given_up(
    own_redis: RedisServer, clean_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Redis answers when asked, the connection is kept; when it says nothing at all, a new one is made."""
    monkeypatch.setattr(waiters_module, "SILENCE_SECONDS", 0.1)
    settings = load_settings({}, redis_url=own_redis.url)
    with connect(settings) as client, capture_logs() as lines:
        async with serving(settings):
            await eventually(lambda: subscribers(client, settings) == 1)
            await asyncio.sleep(0.5)
            assert [line for line in lines if line["event"].startswith("waiters.")] == []
            own_redis.pause()
            await eventually(lambda: [line for line in lines if line.get("reason") == "silence"])
            own_redis.resume()
            await eventually(lambda: subscribers(client, settings) == 1)
