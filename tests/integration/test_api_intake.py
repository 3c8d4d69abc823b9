"""Submissions become jobs in groups, on a real Redis: few scripts for many, and no wait for one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field

import pytest
import redis
from structlog.testing import capture_logs

from api import intake as intake_module
from api.intake import GROUP_JOBS, Intake
from tests.integration.api_client import eventually, ids_in_queue
from tests.integration.ledger_probe import MODEL, LedgerProbe, new_job
from tidegate.commands import Ticket
from tidegate.errors import StoreUnavailable
from tidegate.ledger import AsyncLedger
from tidegate.settings import Settings
from tidegate.store import connect_async

pytestmark = pytest.mark.anyio

#: A limit against hangs.
LIMIT_SECONDS = 20


@dataclass
class StubOffice:
    """Keeps what it is given; may be told to hang or to fail."""

    issued: list[list[str]] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None

    async def issue(self, tickets: Sequence[Ticket]) -> None:
        """Take tickets, once the office is open."""
        await self.open.wait()
        if self.failure:
            raise self.failure
        self.issued.append([ticket.job_id for ticket in tickets])


@pytest.fixture
def office() -> StubOffice:
    """An office that is open."""
    office = StubOffice()
    office.open.set()
    return office


@pytest.fixture
async def intake(settings: Settings, office: StubOffice) -> AsyncIterator[Intake]:
    """An intake over the real ledger, with that office."""
    client = connect_async(settings)
    intake = Intake(AsyncLedger(client, settings), office)
    yield intake
    office.open.set()
    await intake.aclose()
    await client.aclose()


def scripts_run(client: redis.Redis) -> int:
    """How many scripts Redis has run so far."""
    stats = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def test_submissions_that_come_together_share_scripts_and_tickets(
    intake: Intake, office: StubOffice, redis_client: redis.Redis, settings: Settings
) -> None:
    """A thousand at once take as many scripts as there are groups; every one is accepted, in order, with a ticket."""
    await intake.submit(new_job())
    jobs = [new_job() for _ in range(1000)]
    before = scripts_run(redis_client)
    admissions = await asyncio.gather(*(intake.submit(job) for job in jobs))
    groups = -(-1000 // GROUP_JOBS)
    assert scripts_run(redis_client) - before == groups
    assert [admission.ticket.job_id for admission in admissions if admission.ticket] == [job.id for job in jobs]
    assert sorted(ids_in_queue(redis_client, settings, MODEL)[1:]) == sorted(job.id for job in jobs)
    await intake.aclose()
    assert len(office.issued) == 1 + groups
    assert [job_id for group in office.issued[1:] for job_id in group] == [job.id for job in jobs]


async def test_one_that_arrives_as_the_first_is_about_to_go_joins_it(
    intake: Intake, office: StubOffice, redis_client: redis.Redis
) -> None:
    """It does not have to wait for the group of that one alone."""
    await intake.submit(new_job())
    before = scripts_run(redis_client)
    first = asyncio.create_task(intake.submit(new_job()))
    await asyncio.sleep(0)
    await asyncio.gather(first, asyncio.create_task(intake.submit(new_job())))
    assert scripts_run(redis_client) - before == 1


async def test_groups_are_small_in_bytes_too(intake: Intake, office: StubOffice) -> None:
    """Redis is not kept busy by one script with a hundred large images."""
    jobs = [new_job(image=b"x" * (intake_module.GROUP_BYTES // 2)) for _ in range(6)]
    await asyncio.gather(*(intake.submit(job) for job in jobs))
    await intake.aclose()
    assert [len(group) for group in office.issued] == [2, 2, 2]


async def test_a_client_does_not_wait_for_its_ticket(intake: Intake, office: StubOffice) -> None:
    """Once the ledger has the job it is accepted, however long the broker takes."""
    office.open.clear()
    async with asyncio.timeout(LIMIT_SECONDS):
        assert (await intake.submit(new_job())).ticket
    assert office.issued == []
    office.open.set()
    await eventually(lambda: office.issued)


async def test_a_broker_that_hangs_holds_the_next_group_for_a_bounded_time(
    intake: Intake, office: StubOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs go on being accepted, and their tickets leave in order when the broker is back."""
    monkeypatch.setattr(intake_module, "TICKETS_WAIT_SECONDS", 0.2)
    office.open.clear()
    jobs = [new_job() for _ in range(3)]
    async with asyncio.timeout(LIMIT_SECONDS):
        for job in jobs:
            assert (await intake.submit(job)).ticket
    office.open.set()
    await intake.aclose()
    assert office.issued == [[job.id] for job in jobs]


@pytest.mark.parametrize("failure", [StoreUnavailable("The broker does not take tickets."), ValueError("a bug")])
async def test_tickets_that_cannot_be_issued_cost_no_job(
    intake: Intake, office: StubOffice, probe: LedgerProbe, failure: Exception
) -> None:
    """The job is accepted and stays in the ledger, where the sweeper finds it; the log says how many."""
    office.failure = failure
    with capture_logs() as lines:
        admission = await intake.submit(new_job())
        await intake.aclose()
    assert admission.ticket is not None
    assert [(line["event"], line["count"]) for line in lines] == [("tickets.unpublished", 1)]
    office.failure = None
    assert (await intake.submit(new_job())).ticket
    probe.age(admission.ticket.job_id)
    assert admission.ticket.job_id in {ticket.job_id for ticket in probe.sweep().tickets}


async def test_who_has_given_up_gets_no_job(
    intake: Intake, office: StubOffice, redis_client: redis.Redis, settings: Settings
) -> None:
    """A submission that is canceled while it waits for its group leaves nothing behind."""
    kept, dropped = new_job(), new_job()
    keeping = asyncio.create_task(intake.submit(kept))
    dropping = asyncio.create_task(intake.submit(dropped))
    await asyncio.sleep(0)
    dropping.cancel()
    await asyncio.wait({keeping, dropping})
    assert ids_in_queue(redis_client, settings, MODEL) == [kept.id]
    await intake.aclose()
    assert office.issued == [[kept.id]]


async def test_an_outage_is_told_to_all_of_a_group_and_then_forgotten(
    settings: Settings, office: StubOffice, intake: Intake
) -> None:
    """Nobody waits for ever, and the next group is tried afresh."""
    nowhere = connect_async(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
    ledger = AsyncLedger(nowhere, settings)
    working = intake._ledger
    intake._ledger = ledger
    outcomes = await asyncio.gather(*(intake.submit(new_job()) for _ in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreUnavailable] * 3
    intake._ledger = working
    assert (await intake.submit(new_job())).ticket
    await nowhere.aclose()


async def test_the_refused_of_a_group_do_not_hold_up_the_accepted(settings: Settings, office: StubOffice) -> None:
    """Each is told its own fate; only the accepted have tickets."""
    client = connect_async(settings)
    intake = Intake(AsyncLedger(client, settings.model_copy(update={"max_queued_jobs": 2})), office)
    admissions = await asyncio.gather(*(intake.submit(new_job()) for _ in range(4)))
    assert [admission.ticket is not None for admission in admissions] == [True, True, False, False]
    assert [admission.full_of for admission in admissions] == ["", "", "jobs", "jobs"]
    await intake.aclose()
    await client.aclose()
    assert [len(group) for group in office.issued] == [2]
