"""Jobs that many ask for at a time are read in few round trips, and each is told its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import redis

from api.readings import GROUP_JOBS, Readings
from tests.integration.ledger_probe import LedgerProbe
from tidegate.errors import StoreUnavailable
from tidegate.jobs import JobRecord, new_job_id
from tidegate.ledger import AsyncLedger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect_async

pytestmark = pytest.mark.anyio


@pytest.fixture
async def readings(settings: Settings) -> AsyncIterator[Readings]:
    """Over a client of its own."""
    client = connect_async(settings)
    yield Readings(AsyncLedger(client, settings))
    await client.aclose()


def scripts_run(client: redis.Redis) -> int:
    """How many scripts Redis has run so far."""
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def test_jobs_that_are_asked_for_at_once_are_read_together(
    readings: Readings, probe: LedgerProbe, redis_client: redis.Redis
) -> None:
    """Fifty clients are each told the right job and place, and cost two runs of the script and not fifty."""
    ids = [ticket.job_id for _ in range(50) for ticket in probe.accept()]
    await readings.job(ids[0])
    before = scripts_run(redis_client)
    records = await asyncio.gather(*map(readings.job, ids))
    found = [record for record in records if record is not None]
    assert [record.id for record in found] == ids
    assert {record.position for record in found} == set(range(50))
    assert scripts_run(redis_client) - before <= 2


async def test_a_place_is_looked_up_only_where_it_is_wanted(
    readings: Readings, probe: LedgerProbe, redis_client: redis.Redis
) -> None:
    """Who waits for an end does not pay for a place."""
    (ticket,) = probe.accept()
    before = scripts_run(redis_client)
    record = await readings.job(ticket.job_id, with_place=False)
    assert record is not None
    assert record.position is None
    assert scripts_run(redis_client) == before


async def test_more_than_a_group_and_unknown_jobs_are_answered(readings: Readings, probe: LedgerProbe) -> None:
    """Nobody is forgotten, and a job that is not there is None for the one who asked for it."""
    (ticket,) = probe.accept()
    asked = [ticket.job_id, *(new_job_id() for _ in range(2 * GROUP_JOBS))]
    first, *others = await asyncio.gather(*map(readings.job, asked))
    assert first is not None
    assert set(others) == {None}


async def test_a_record_that_cannot_be_read_fails_for_its_own_client_alone(
    readings: Readings, probe: LedgerProbe, redis_client: redis.Redis, settings: Settings
) -> None:
    """Whoever is read for in the same group is answered."""
    broken, *sound = [ticket.job_id for ticket in probe.accept(20)]
    redis_client.hset(f"{settings.key_prefix}job:{broken}", "state", "no state of ours")
    asked = [readings.job(job_id, with_place=False) for job_id in [*sound, broken, broken]]
    redis_client.config_resetstat()
    *records, error, again = await asyncio.gather(*asked, return_exceptions=True)
    assert [record.id for record in records if isinstance(record, JobRecord)] == sound
    assert isinstance(error, ValueError)
    assert isinstance(again, ValueError)
    stats: Any = redis_client.info("commandstats")
    assert stats["cmdstat_hgetall"]["calls"] < 4 * len(asked), "found by halves, not one by one and again"


async def test_nobody_is_asked_for_again_who_has_left(
    readings: Readings,
    probe: LedgerProbe,
    redis_client: redis.Redis,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a group is read again for the sake of one record, those who are gone meanwhile are left out."""
    broken, *sound = [ticket.job_id for ticket in probe.accept(20)]
    redis_client.hset(f"{settings.key_prefix}job:{broken}", "state", "no state of ours")
    asked = [asyncio.create_task(readings.job(job_id, with_place=False)) for job_id in [broken, *sound]]
    read = readings._ledger.get_many
    sizes: list[int] = []

    async def read_and_leave(job_ids: Sequence[str]) -> list[JobRecord | None]:
        sizes.append(len(job_ids))
        for task in asked:
            task.cancel()
        await asyncio.wait(asked)
        return await read(job_ids)

    monkeypatch.setattr(readings._ledger, "get_many", read_and_leave)
    await asyncio.wait(asked)
    await asyncio.sleep(0)
    assert sizes == [20]


async def test_one_who_leaves_takes_nobody_along(readings: Readings, probe: LedgerProbe) -> None:
    """A client that is gone while its group is read is not told, and the others are."""
    (ticket,) = probe.accept()
    leaving, staying = (asyncio.create_task(readings.job(ticket.job_id)) for _ in range(2))
    await asyncio.sleep(0)
    leaving.cancel()
    record = await staying
    assert isinstance(record, JobRecord)
    assert leaving.cancelled()


async def test_an_outage_is_told_to_all_of_a_group() -> None:
    """Each of them may come back, and the next group is read as if nothing had been."""
    settings = load_settings({}, redis_url="redis://127.0.0.1:1", redis_timeout_seconds=0.2)
    client = connect_async(settings)
    readings = Readings(AsyncLedger(client, settings))
    for _ in range(2):
        outcomes = await asyncio.gather(*(readings.job(new_job_id()) for _ in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    await client.aclose()
