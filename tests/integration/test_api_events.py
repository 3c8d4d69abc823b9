"""A job's progress as server-sent events, on a real Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis

from api import event_stream
from api import waiters as waiters_module
from tests.integration.api_client import PNG, eventually, ready_model, report, run_job, services_of, serving
from tests.integration.ledger_probe import LedgerProbe
from tidegate.ledger import Ledger
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "watched"
#: By when who is told has heard it: a limit against hangs.
TOLD_SECONDS = 20.0
Event = dict[str, Any]


@pytest.fixture(autouse=True)
def no_rereading(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds by looking again what it was not told."""
    monkeypatch.setattr(waiters_module, "REREAD_SECONDS", 3600)


@pytest.fixture
async def api(settings: Settings, redis_client: redis.Redis) -> AsyncIterator[httpx.AsyncClient]:
    """The API with one model, once it listens."""
    report(settings, ready_model(MODEL))
    async with serving(settings) as client:
        await eventually(lambda: redis_client.pubsub_numsub(f"{settings.key_prefix}started")[0][1] == 1)
        yield client


def events_of(text: str) -> list[Event]:
    """What a client of the stream gets to see, comments aside."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            events.append({**fields, "data": json.loads(fields["data"])})
    return events


async def submitted(api: httpx.AsyncClient) -> str:
    """The path of a new job."""
    return str((await api.post("/v1/jobs", content=PNG)).headers["location"])


async def watched(api: httpx.AsyncClient, place: str, **headers: str) -> asyncio.Task[httpx.Response]:
    """A client that watches the job, once it is heard."""
    before = services_of(api).waiters.count
    watching = asyncio.create_task(api.get(f"{place}/events", headers=headers))
    await eventually(lambda: services_of(api).waiters.count == before + 1)
    # It has also been told how things stand now.
    await asyncio.sleep(0.1)
    return watching


async def test_a_job_is_followed_from_its_queue_to_its_end(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """Queued with its place, running, ended with its result; each as soon as it is so, and then the stream is over."""
    await submitted(api)
    place = await submitted(api)
    watching = await watched(api, place)
    job_id = place.rpartition("/")[2]
    ledger.run(ledger.commands.claim("worker", [job_id]))
    await asyncio.sleep(0.2)
    run_job(ledger, job_id)
    async with asyncio.timeout(TOLD_SECONDS):
        response = await watching
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    assert response.text.startswith("retry: 2000\n\n")
    queued, running, ended = events_of(response.text)
    assert (queued["event"], queued["data"]["status"], queued["data"]["queue_position"]) == ("queued", "queued", 1)
    assert (running["event"], running["data"]["status"], running["data"]["attempts"]) == ("running", "running", 1)
    assert (ended["event"], ended["data"]["status"]) == ("ended", "succeeded")
    assert ended["data"] == (await api.get(place)).json()


async def test_a_start_that_nobody_saw_is_told_before_the_end(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """However fast a job was, its client sees the same three steps; one that never ran has two."""
    fast, canceled = await submitted(api), await submitted(api)
    watching = await watched(api, fast)
    run_job(ledger, fast.rpartition("/")[2])
    events = events_of((await watching).text)
    assert [event["event"] for event in events] == ["queued", "running", "ended"]
    assert (events[1]["data"]["result"], events[1]["data"]["finished_at"]) == (None, None)
    watching = await watched(api, canceled)
    await api.delete(canceled)
    events = events_of((await watching).text)
    assert [(event["event"], event["data"]["status"]) for event in events] == [
        ("queued", "queued"),
        ("ended", "canceled"),
    ]


async def test_who_comes_back_is_told_what_is_new(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """Not what it has seen, but a start that it missed; and nothing at all after the end."""
    place = await submitted(api)
    watching = await watched(api, place, **{"last-event-id": "queued-0-0"})
    run_job(ledger, place.rpartition("/")[2])
    assert [event["event"] for event in events_of((await watching).text)] == ["running", "ended"]
    late = await api.get(f"{place}/events", headers={"last-event-id": "queued-0-0"})
    assert [event["event"] for event in events_of(late.text)] == ["running", "ended"]
    last = await api.get(f"{place}/events", headers={"last-event-id": "running-1"})
    (ended,) = events_of(last.text)
    assert (await api.get(f"{place}/events", headers={"last-event-id": ended["id"]})).status_code == 204
    anew = await api.get(f"{place}/events")
    assert [event["event"] for event in events_of(anew.text)] == ["ended"]


async def test_a_place_that_changes_is_told(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits in the queue sees it move."""
    monkeypatch.setattr(waiters_module, "REREAD_SECONDS", 0.05)
    report(settings, ready_model(MODEL))
    async with serving(settings) as api:
        first, second = await submitted(api), await submitted(api)
        watching = await watched(api, second)
        run_job(ledger, first.rpartition("/")[2])
        await asyncio.sleep(0.3)
        run_job(ledger, second.rpartition("/")[2])
        events = events_of((await watching).text)
    places = [event["data"]["queue_position"] for event in events if event["event"] == "queued"]
    assert places == [1, 0]


async def test_a_job_that_is_tried_again_is_queued_again(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """Its second run is told like its first."""
    from tidegate.commands import Return

    place = await submitted(api)
    job_id = place.rpartition("/")[2]
    watching = await watched(api, place)
    ledger.run(ledger.commands.claim("worker", [job_id]))
    await asyncio.sleep(0.2)
    ledger.run(ledger.commands.release("worker", [Return(job_id)]))
    ledger.run(ledger.commands.claim("worker", [job_id]))
    await asyncio.sleep(0.2)
    run_job(ledger, job_id)
    events = events_of((await watching).text)
    assert [event["data"]["attempts"] for event in events if event["event"] == "running"] == [1, 2]


async def test_a_stream_lives_while_nothing_happens(
    settings: Settings, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Comments keep proxies from closing it."""
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.05)
    report(settings, ready_model(MODEL))
    async with serving(settings) as api:
        place = await submitted(api)
        watching = await watched(api, place)
        await asyncio.sleep(0.3)
        run_job(ledger, place.rpartition("/")[2])
        assert (await watching).text.count(": ping\n\n") >= 3


async def test_a_process_that_stops_ends_its_streams(api: httpx.AsyncClient) -> None:
    """So that their clients go to another one, and the stop waits for nobody."""
    place = await submitted(api)
    watching = await watched(api, place)
    services_of(api).waiters.hurry()
    async with asyncio.timeout(TOLD_SECONDS):
        events = events_of((await watching).text)
    assert [event["event"] for event in events] == ["queued"]
    assert services_of(api).waiters.count == 0


async def test_a_job_that_is_no_longer_kept_ends_its_stream(api: httpx.AsyncClient, probe: LedgerProbe) -> None:
    """There is nothing more to tell of it."""
    place = await submitted(api)
    watching = await watched(api, place)
    probe.client.delete(f"{probe.prefix}job:{place.rpartition('/')[2]}")
    for watches in services_of(api).waiters._watches.values():
        for watch in watches:
            watch.tell()
    async with asyncio.timeout(TOLD_SECONDS):
        assert [event["event"] for event in events_of((await watching).text)] == ["queued"]
