"""The ledger as the API reads it: on asyncio, with a job's place in the queue."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.integration.ledger_probe import HOUR_MS, LedgerProbe, new_job, success
from tidegate.commands import Return
from tidegate.jobs import JobRecord, Priority, State
from tidegate.ledger import AsyncLedger
from tidegate.settings import Settings
from tidegate.store import connect_async

T = TypeVar("T")
OWNER = "batch-1"


def asked(settings: Settings, question: Callable[[AsyncLedger], Awaitable[T]]) -> T:
    """Ask the API's ledger one thing."""

    async def ask() -> T:
        async with connect_async(settings) as client:
            return await question(AsyncLedger(client, settings))

    return asyncio.run(ask())


def read(settings: Settings, job_id: str) -> JobRecord:
    """The record as the API sees it."""
    record = asked(settings, lambda ledger: ledger.get(job_id))
    assert record is not None
    return record


def test_position_counts_the_jobs_that_go_before(settings: Settings, probe: LedgerProbe) -> None:
    """All jobs of a higher priority go before, and those of its own that came earlier; other models do not."""
    tickets = {priority: probe.accept(2, priority=priority) for priority in reversed(Priority)}
    probe.accept(3, model="another", priority=Priority.HIGH)
    for ticket in (ticket for group in tickets.values() for ticket in group[:1]):
        probe.age(ticket.job_id, 1000)

    positions = {
        priority: [read(settings, ticket.job_id).position for ticket in tickets[priority]] for priority in tickets
    }

    assert positions == {Priority.HIGH: [0, 1], Priority.NORMAL: [2, 3], Priority.LOW: [4, 5]}


def test_only_a_job_that_waits_for_a_worker_has_a_position(settings: Settings, probe: LedgerProbe) -> None:
    """A job that runs, is over or was put off has none."""
    running, over, deferred = (ticket.job_id for ticket in probe.accept(3))
    probe.claim(OWNER, running, over, deferred)
    probe.ledger.run(probe.commands.complete(OWNER, [success(over)]))
    probe.ledger.run(probe.commands.release(OWNER, [Return(deferred, delay_ms=HOUR_MS)]))

    records = [read(settings, job_id) for job_id in (running, over, deferred)]

    assert [record.state for record in records] == [State.RUNNING, State.SUCCEEDED, State.QUEUED]
    assert [record.position for record in records] == [None, None, None]


def test_both_ledgers_read_the_same_record(settings: Settings, probe: LedgerProbe) -> None:
    """What the worker wrote is what the API gives."""
    job_id = probe.accept(metadata={"a": "b"}, expires_in_ms=HOUR_MS)[0].job_id
    probe.claim(OWNER, job_id)
    probe.ledger.run(probe.commands.complete(OWNER, [success(job_id)]))

    assert read(settings, job_id) == probe.get(job_id)


def test_both_ledgers_carry_out_the_same_commands(settings: Settings, probe: LedgerProbe) -> None:
    """A job that the API accepts and cancels is accepted and canceled for the worker."""
    job = new_job()

    (admission,) = asked(settings, lambda ledger: ledger.run(ledger.commands.accept([job])))
    assert admission.ticket is not None
    assert probe.trace(job.id).places == {"queued:m:normal"}

    assert asked(settings, lambda ledger: ledger.run(ledger.commands.cancel([job.id]))) == ["canceled"]
    assert probe.trace(job.id).state is State.CANCELED


@pytest.mark.parametrize("text", ["", "nobody", "*", "a" * 500])
def test_unknown_id_is_nobody_s_job(settings: Settings, text: str) -> None:
    """What never was is None, and reading it creates nothing."""
    assert asked(settings, lambda ledger: ledger.get(text)) is None


def test_reading_leaves_no_key_behind(settings: Settings, probe: LedgerProbe) -> None:
    """However often an unknown job is asked for, the store stays empty."""
    for _ in range(3):
        assert asked(settings, lambda ledger: ledger.get(new_job().id)) is None

    assert probe.all_keys() == set()
