"""The sweeper's script: what it brings back, what it leaves alone, and what it costs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.ledger_probe import HOUR_MS, MODEL, LedgerProbe, new_job
from tests.integration.redis_server import running_redis
from tidegate.commands import SWEEP_LIMIT, Return
from tidegate.jobs import Priority, State
from tidegate.ledger import Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.tickets import TicketOffice, ticket_lists

OWNER = "batch-1"


@pytest.fixture
def office(settings: Settings) -> Iterator[TicketOffice]:
    """Issues real Celery messages."""
    with connect(settings) as client:
        yield TicketOffice(client)


@pytest.fixture
def model(redis_client: redis.Redis) -> Iterator[str]:
    """A model of this test's own: Celery's lists have no prefix to keep tests apart."""
    name = f"model-{uuid.uuid4().hex}"
    yield name
    redis_client.delete(*ticket_lists(name))


def running(probe: LedgerProbe, owner: str = OWNER) -> str:
    """A job that ``owner`` runs; gives its id."""
    job_id = probe.accept()[0].job_id
    assert probe.claim(owner, job_id) == [job_id]
    return job_id


def lapse(probe: LedgerProbe, job_id: str) -> None:
    """Claim a job and never be heard of again, until a sweep."""
    probe.claim(f"batch-{uuid.uuid4()}", job_id, alone=True)
    probe.lapse_lease(job_id)
    probe.sweep()


# Leases


def test_lapsed_lease_comes_back_with_a_ticket(probe: LedgerProbe) -> None:
    """The job of a lost machine is queued again, and its ticket tells its new place in the queue."""
    job_id = running(probe)
    probe.lapse_lease(job_id)

    swept = probe.sweep()

    (ticket,) = swept.tickets
    trace = probe.trace(job_id)
    assert swept.lost == 1
    assert (ticket.job_id, ticket.model, ticket.priority) == (job_id, MODEL, Priority.NORMAL)
    assert trace.scores == {"queued:m:normal": ticket.issued_ms}
    assert b"lease" not in trace.record


def test_live_lease_is_left_alone(probe: LedgerProbe) -> None:
    """A job whose worker renews is nobody else's business."""
    job_id = running(probe)
    before = probe.trace(job_id)

    assert probe.sweep().lost == 0
    assert probe.trace(job_id) == before


def test_lease_that_nobody_could_renew_gets_some_more_time(probe: LedgerProbe, settings: Settings) -> None:
    """After a time in which nobody swept, Redis may have been away: its owner has half a lease to speak up."""
    job_id = running(probe)
    probe.lapse_lease(job_id)
    sweep = probe.commands.sweep([(MODEL, ["none"] * 3)], lock=False)

    first, again = probe.ledger.run(sweep), probe.ledger.run(sweep)

    assert (first.lost, again.lost) == (0, 0)
    half_ms = settings.lease_seconds * 500
    assert probe.trace(job_id).scores["running:m"] == pytest.approx(probe.now_ms() + half_ms, abs=1000)
    probe.lapse_lease(job_id)
    assert probe.ledger.run(sweep).lost == 1


def test_lapse_at_the_last_attempt_fails_the_job(probe: LedgerProbe, settings: Settings) -> None:
    """After as many lost runs as are allowed the job fails as ``worker_lost``, and wants no ticket."""
    job_id = probe.accept()[0].job_id
    for _ in range(settings.max_attempts - 1):
        lapse(probe, job_id)
        assert probe.trace(job_id).state is State.QUEUED

    lapse(probe, job_id)

    record = probe.get(job_id)
    assert (record.state, record.attempts) == (State.FAILED, settings.max_attempts)
    assert (record.error or {})["code"] == "worker_lost"
    assert probe.trace(job_id).dead_letter


def test_second_lapse_makes_a_suspect(probe: LedgerProbe) -> None:
    """The first lapse is put down to the machine, the second to the job."""
    job_id = probe.accept()[0].job_id
    lapse(probe, job_id)
    assert b"suspect" not in probe.trace(job_id).record

    lapse(probe, job_id)

    assert probe.trace(job_id).record[b"suspect"] == b"1"


def test_suspect_is_claimed_alone_only(probe: LedgerProbe) -> None:
    """A job that may kill its process takes no neighbours with it: in company it is refused, and unchanged."""
    suspect, neighbour = running(probe), probe.accept()[0].job_id
    probe.ledger.run(probe.commands.lose(OWNER, [suspect]))
    before = probe.trace(suspect)

    claimed, refused = probe.ledger.run(probe.commands.claim("batch-2", [suspect, neighbour]))

    assert [job.id for job in claimed] == [neighbour]
    assert [(refusal.id, refusal.reason) for refusal in refused] == [(suspect, "suspect")]
    assert probe.trace(suspect) == before
    assert probe.claim("batch-3", suspect, alone=True) == [suspect]


# Pauses and deadlines


def test_deferred_job_comes_due_with_a_ticket(probe: LedgerProbe) -> None:
    """A job that was put off is queued when its time has come, and not before."""
    job_id = running(probe)
    probe.ledger.run(probe.commands.release(OWNER, [Return(job_id, delay_ms=HOUR_MS)]))
    assert probe.sweep().due == 0
    assert probe.trace(job_id).places == {"deferred:m"}

    probe.end_pause(job_id)
    swept = probe.sweep()

    assert (swept.due, [ticket.job_id for ticket in swept.tickets]) == (1, [job_id])
    assert probe.trace(job_id).scores == {"queued:m:normal": swept.tickets[0].issued_ms}


def test_deadline_ends_queued_deferred_and_running_jobs(probe: LedgerProbe) -> None:
    """A job whose time is over ends as expired wherever it stands; one without a deadline waits for ever."""
    queued, deferred, run = (ticket.job_id for ticket in probe.accept(3, expires_in_ms=HOUR_MS))
    patient = probe.accept()[0].job_id
    probe.claim(OWNER, deferred, run)
    probe.ledger.run(probe.commands.release(OWNER, [Return(deferred, delay_ms=HOUR_MS)]))
    assert probe.sweep().expired == 0
    for job_id in (queued, deferred, run, patient):
        probe.pass_deadline(job_id)

    swept = probe.sweep()

    assert (swept.expired, swept.tickets) == (3, ())
    assert {probe.trace(job_id).state for job_id in (queued, deferred, run)} == {State.EXPIRED}
    assert probe.trace(patient).state is State.QUEUED


def test_ticket_tells_the_deadline(probe: LedgerProbe) -> None:
    """A ticket that is issued again carries the deadline that the job was accepted with."""
    (first,) = probe.accept(expires_in_ms=HOUR_MS, priority=Priority.HIGH)
    probe.age(first.job_id)

    (again,) = probe.sweep().tickets

    assert first.deadline_ms is not None
    assert (again.deadline_ms, again.priority) == (first.deadline_ms, Priority.HIGH)


# Lost tickets


@pytest.mark.parametrize("priority", Priority)
def test_lost_ticket_is_issued_again_once_a_period(probe: LedgerProbe, settings: Settings, priority: Priority) -> None:
    """A job that has waited longer than the grace without a ticket gets one, and the next only a period later."""
    job_id = probe.accept(priority=priority)[0].job_id
    grace_ms = round(settings.sweep_seconds * 1000)
    assert probe.sweep().reticketed == 0

    probe.age(job_id, grace_ms)
    assert [ticket.job_id for ticket in probe.sweep().tickets] == [job_id]
    assert probe.sweep().reticketed == 0

    probe.age(job_id, grace_ms)
    assert probe.sweep().reticketed == 1


def test_real_ticket_tells_the_sweeper_when_it_was_issued(probe: LedgerProbe, office: TicketOffice, model: str) -> None:
    """The message that Celery writes holds the time of issue where the sweeper reads it."""
    tickets = [probe.accept(model=model, priority=priority)[0] for priority in Priority]

    office.issue(tickets)

    for ticket, key in zip(tickets, ticket_lists(model), strict=True):
        messages: Any = probe.client.lrange(key, 0, -1)
        assert [json.loads(message)["headers"]["issued_ms"] for message in messages] == [ticket.issued_ms]
        assert json.loads(messages[0])["headers"]["id"] == ticket.job_id


def test_older_ticket_in_the_list_vouches_for_the_jobs_behind_it(
    probe: LedgerProbe, office: TicketOffice, model: str
) -> None:
    """While a ticket waits that is older than the job, its own may wait behind it: a deep queue is not doubled."""
    first, second = probe.accept(2, model=model)
    waiting_ms = {ticket.job_id: probe.age(ticket.job_id, HOUR_MS - i) for i, ticket in enumerate((first, second))}
    office.issue([_issued(first, waiting_ms[first.job_id])])

    assert probe.sweep(*ticket_lists(model), model=model).reticketed == 0


def test_newer_ticket_in_the_list_proves_that_an_older_one_is_gone(
    probe: LedgerProbe, office: TicketOffice, model: str
) -> None:
    """The list is first in, first out: a job older than its oldest ticket has lost its own, and only that one."""
    lost, waiting = probe.accept(2, model=model)
    probe.age(lost.job_id, HOUR_MS)
    office.issue([_issued(waiting, probe.age(waiting.job_id, HOUR_MS // 2))])

    swept = probe.sweep(*ticket_lists(model), model=model)

    assert [ticket.job_id for ticket in swept.tickets] == [lost.job_id]


def test_ticket_of_another_priority_vouches_for_nothing(probe: LedgerProbe, office: TicketOffice, model: str) -> None:
    """Each priority is a list of its own."""
    high = probe.accept(model=model, priority=Priority.HIGH)[0]
    low = probe.accept(model=model, priority=Priority.LOW)[0]
    issued_ms = probe.age(high.job_id, HOUR_MS)
    probe.age(low.job_id, HOUR_MS // 2)
    office.issue([_issued(high, issued_ms)])

    swept = probe.sweep(*ticket_lists(model), model=model)

    assert [ticket.job_id for ticket in swept.tickets] == [low.job_id]


@pytest.mark.parametrize(
    "message",
    [
        b"no json", b"\xff\xfe", b"", b"[]", b'"text"', b"null", b"{}", b'{"headers": null}', b'{"headers": []}',
        b'{"headers": {"id": "x"}}', b'{"headers": {"issued_ms": null}}', b'{"headers": {"issued_ms": "soon"}}',
        b'{"headers": {"issued_ms": {}}}', b"[" * 2000,
    ],
)  # fmt: skip
def test_foreign_message_at_the_tail_stops_no_sweep_and_doubles_nothing(probe: LedgerProbe, message: bytes) -> None:
    """What cannot be read may be as old as anything: no ticket is held for lost until it has been consumed."""
    probe.age(probe.accept()[0].job_id)
    lists = [f"{probe.prefix}list:{priority}" for priority in Priority]
    probe.client.lpush(lists[1], message)
    assert probe.sweep(*lists).reticketed == 0

    probe.client.delete(lists[1])
    assert probe.sweep(*lists).reticketed == 1


def test_tickets_of_a_sweep_whose_reply_was_lost_are_issued_by_a_later_one(
    probe: LedgerProbe, settings: Settings
) -> None:
    """A job that came back, but whose ticket never left the sweeper, has lost its ticket like any other."""
    job_id = running(probe)
    probe.lapse_lease(job_id)
    assert len(probe.sweep().tickets) == 1

    probe.age(job_id, round(settings.sweep_seconds * 1000))

    assert [ticket.job_id for ticket in probe.sweep().tickets] == [job_id]


# The sweep itself


def test_one_sweeper_a_period_does_the_work(ledger: Ledger, probe: LedgerProbe, settings: Settings) -> None:
    """Of two workers that sweep at once one finds the lock and leaves; the lock goes by itself before the next."""
    probe.age(probe.accept()[0].job_id)
    command = ledger.commands.sweep([(MODEL, ["a", "b", "c"])])

    first, second = ledger.run(command), ledger.run(command)

    assert (first.ran, first.reticketed) == (True, 1)
    assert (second.ran, second.tickets) == (False, ())
    assert 0 < probe.client.pttl(f"{probe.prefix}sweep") < settings.sweep_seconds * 1000


def test_sweep_says_when_its_limit_left_work_behind(probe: LedgerProbe) -> None:
    """One script never runs long: it takes so many jobs, of whatever kinds and lanes, and the next takes the rest."""
    high, low = SWEEP_LIMIT - 10, 11
    long_ago = probe.now_ms() - HOUR_MS
    job_ids = []
    for priority, count in ((Priority.HIGH, high), (Priority.LOW, low)):
        some = [ticket.job_id for ticket in probe.accept(count, priority=priority)]
        probe.client.zadd(f"{probe.prefix}queued:m:{priority}", dict.fromkeys(some, long_ago), xx=True)
        job_ids += some

    first, second = probe.sweep(), probe.sweep()

    assert (first.reticketed, first.more) == (SWEEP_LIMIT, True)
    assert (second.reticketed, second.more) == (1, False)
    assert {ticket.job_id for ticket in first.tickets + second.tickets} == set(job_ids)


def test_model_is_forgotten_when_nothing_of_it_is_left(ledger: Ledger, probe: LedgerProbe) -> None:
    """The sweeper looks at models with open jobs only: waiting, put off or running."""
    waiting, deferred, run = (ticket.job_id for ticket in probe.accept(3))
    probe.claim(OWNER, deferred, run)
    ledger.run(ledger.commands.release(OWNER, [Return(deferred, delay_ms=HOUR_MS)]))

    for job_id in (waiting, deferred, run):
        probe.sweep()
        assert ledger.models() == [MODEL]
        ledger.run(ledger.commands.cancel([job_id]))

    probe.sweep()
    assert ledger.models() == []


@pytest.mark.parametrize("index", ["deadlines", "queued:m:normal", "running:m", "deferred:m"])
def test_id_without_a_record_is_dropped_and_stops_nothing(probe: LedgerProbe, index: str) -> None:
    """A record that was evicted or deleted by hand leaves an id behind; the sweep clears it and does its work."""
    probe.client.zadd(probe.prefix + index, {new_job().id: 1})
    job_id = running(probe)
    probe.lapse_lease(job_id)

    swept = probe.sweep()

    assert [ticket.job_id for ticket in swept.tickets] == [job_id]
    assert probe.client.zcount(probe.prefix + index, "-inf", 1) == 0


def test_sweep_of_a_deep_queue_costs_what_one_of_a_shallow_queue_costs(
    redis_program: Path, tmp_path: Path, clean_environment: None
) -> None:
    """With nothing due a sweep gives Redis the same commands at 100,000 queued jobs as at 1,000."""
    with running_redis(tmp_path, appendonly="no") as server:
        # So short a period that every job is older than the grace: the oldest ticket must vouch for all of them.
        settings = load_settings({}, redis_url=server.url, sweep_seconds=0.01)
        with connect(settings) as client:
            office = TicketOffice(client)
            probe = LedgerProbe(Ledger(client, settings))
            office.issue(probe.accept(1_000, image=b"x")[:1])
            shallow = _cost_of_a_sweep(probe)
            for _ in range(99):
                probe.accept(1_000, image=b"x")
            deep = _cost_of_a_sweep(probe)

    assert deep == shallow
    assert deep["zrangebyscore"] == 6


def _cost_of_a_sweep(probe: LedgerProbe) -> dict[str, int]:
    """How often the sweep's script calls which command; what it took is printed."""
    probe.sweep(*ticket_lists(MODEL))
    probe.client.config_resetstat()
    swept = probe.sweep(*ticket_lists(MODEL))
    assert (swept.expired, swept.lost, swept.due, swept.reticketed) == (0, 0, 0, 0)
    commands: Any = probe.client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): stats for name, stats in commands.items()}
    depth = probe.client.zcard(f"{probe.prefix}queued:m:normal")
    print(f"a sweep at {depth} queued jobs: {calls['evalsha']['usec']} µs of Redis's time")
    return {name: stats["calls"] for name, stats in calls.items() if not name.startswith(("config", "evalsha"))}


def _issued(ticket: Any, issued_ms: int) -> Any:
    """The ticket as it was issued then."""
    return ticket._replace(issued_ms=issued_ms)
