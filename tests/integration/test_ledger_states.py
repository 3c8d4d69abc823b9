"""The state machine as it runs in Redis: every state against every event, and every command said twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests.integration.ledger_probe import (
    FETCH_LEASE,
    HOUR_MS,
    RESULT,
    RUN,
    Announcements,
    LedgerProbe,
    failure,
    new_job,
    success,
)
from tidegate.commands import Return
from tidegate.errors import ImageCorrupt, ModelFailed, ModelOverloaded, UrlTimeout
from tidegate.fetches import Fetch, end_fetch
from tidegate.jobs import TRANSITIONS, Event, State
from tidegate.ledger import Ledger
from tidegate.settings import Settings

OWNER = "batch-1"
STRANGER = "batch-2"
CORRUPT = ImageCorrupt("The file is truncated.")

Act = Callable[[LedgerProbe, str], object]


def nothing(_probe: LedgerProbe, _job_id: str) -> None:
    """No time passes."""


def lose(probe: LedgerProbe, job_id: str) -> None:
    """The worker saw its child die."""
    probe.ledger.run(probe.commands.lose(OWNER, [job_id]))


def sweep(probe: LedgerProbe, _job_id: str) -> None:
    """A worker looks after what fell between the chairs."""
    probe.sweep()


def miss(probe: LedgerProbe, job_id: str) -> None:
    """The worker that was to fetch its image could not."""
    fetch = Fetch(job_id, str(FETCH_LEASE), "http://host/")
    probe.ledger.run(end_fetch(fetch, host_works=False, error=UrlTimeout("The host did not answer.")))


def spend_all_attempts(probe: LedgerProbe, job_id: str) -> None:
    """This run is the last."""
    probe.spend_attempts(job_id, probe.commands.settings.max_attempts)


def lapse_last_lease(probe: LedgerProbe, job_id: str) -> None:
    """This run is the last, and its worker is gone."""
    spend_all_attempts(probe, job_id)
    probe.lapse_lease(job_id)


@dataclass(frozen=True)
class Happening:
    """One way in which an event comes about: what time does first, and then what somebody does."""

    event: Event
    name: str
    act: Act
    time: Act = nothing


HAPPENINGS = [
    Happening(Event.CLAIM, "a worker claims", lambda p, job: p.claim(STRANGER, job)),
    Happening(Event.SUCCEED, "a result", lambda p, job: p.ledger.run(p.commands.complete(OWNER, [success(job)]))),
    Happening(Event.FAIL, "an error", lambda p, job: p.ledger.run(p.commands.complete(OWNER, [failure(job, CORRUPT)]))),
    Happening(Event.RETRY, "release", lambda p, job: p.ledger.run(p.commands.release(OWNER, [Return(job)]))),
    Happening(Event.RETRY, "defer", lambda p, job: p.ledger.run(p.commands.release(OWNER, [Return(job, HOUR_MS)]))),
    Happening(Event.LOSE, "child died", lose),
    Happening(Event.LOSE, "lease lapsed", sweep, LedgerProbe.lapse_lease),
    Happening(Event.LOSE_LAST, "child died", lose, spend_all_attempts),
    Happening(Event.LOSE_LAST, "lease lapsed", sweep, lapse_last_lease),
    Happening(Event.CANCEL, "cancel", lambda p, job: p.ledger.run(p.commands.cancel([job]))),
    Happening(Event.MISS, "no image", miss, LedgerProbe.await_image),
    Happening(Event.EXPIRE, "deadline passed", sweep, LedgerProbe.pass_deadline),
]


def bring_to(probe: LedgerProbe, state: State) -> str:
    """A job in that state, which ``OWNER`` has or had under its lease; gives its id."""
    job_id = probe.accept(expires_in_ms=HOUR_MS)[0].job_id
    probe.claim(OWNER, job_id)
    match state:
        case State.QUEUED:
            probe.ledger.run(probe.commands.release(OWNER, [Return(job_id)]))
        case State.RUNNING:
            pass
        case State.SUCCEEDED:
            probe.ledger.run(probe.commands.complete(OWNER, [success(job_id)]))
        case State.FAILED:
            probe.ledger.run(probe.commands.complete(OWNER, [failure(job_id, CORRUPT)]))
        case State.CANCELED:
            probe.ledger.run(probe.commands.cancel([job_id]))
        case State.EXPIRED:
            probe.pass_deadline(job_id)
            probe.sweep()
    assert probe.trace(job_id).state is state
    return job_id


def act_and_listen(probe: LedgerProbe, happening: Happening, job_id: str) -> list[str]:
    """Let it happen; gives the ids that were announced as ended by it."""
    with Announcements(probe.ledger) as announcements:
        happening.act(probe, job_id)
        return announcements.read()


def test_happenings_cover_every_event() -> None:
    """No event is left out of the walk below."""
    assert {happening.event for happening in HAPPENINGS} == set(Event)


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda happening: f"{happening.event}: {happening.name}")
@pytest.mark.parametrize("state", State)
def test_event_leads_where_the_table_says(probe: LedgerProbe, state: State, happening: Happening) -> None:
    """The scripts follow the table; where it names no next state, Redis holds the same bytes as before."""
    job_id = bring_to(probe, state)
    happening.time(probe, job_id)
    before, bytes_before = probe.trace(job_id), probe.waiting_bytes()

    announced = act_and_listen(probe, happening, job_id)

    after = probe.trace(job_id)
    follows = TRANSITIONS.get((state, happening.event))
    assert announced == ([job_id] if follows and follows.terminal else [])
    if follows is None:
        assert after == before
        assert probe.waiting_bytes() == bytes_before
    else:
        assert after.state is follows
        assert after.expires == follows.terminal
        assert after.dead_letter == (happening.event is Event.LOSE_LAST)
        assert (after.image is None) == (follows.terminal and not after.dead_letter)


@pytest.mark.parametrize("happening", HAPPENINGS, ids=lambda happening: f"{happening.event}: {happening.name}")
def test_deferred_job_takes_events_as_a_queued_one(probe: LedgerProbe, happening: Happening) -> None:
    """A job that was put off is queued, except that nobody can claim it before its time."""
    job_id = bring_to(probe, State.RUNNING)
    probe.ledger.run(probe.commands.release(OWNER, [Return(job_id, delay_ms=HOUR_MS)]))
    happening.time(probe, job_id)
    before = probe.trace(job_id)

    happening.act(probe, job_id)

    follows = TRANSITIONS.get((State.QUEUED, happening.event))
    if follows is None or happening.event is Event.CLAIM:
        assert probe.trace(job_id) == before
    else:
        assert probe.trace(job_id).state is follows


@pytest.mark.parametrize("state", [state for state in State if state.terminal])
def test_ended_job_is_not_kept_longer_by_what_comes_late(probe: LedgerProbe, state: State) -> None:
    """Whatever happens to a job that is over, its record goes when it would have gone."""
    job_id = bring_to(probe, state)
    key = f"{probe.prefix}job:{job_id}"
    probe.client.expire(key, 60)

    for happening in HAPPENINGS:
        happening.act(probe, job_id)

    ttl = probe.client.ttl(key)
    assert 0 < ttl <= 60


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
@pytest.mark.parametrize(
    "happening",
    [
        happening
        for happening in HAPPENINGS
        if happening.event in (Event.CLAIM, Event.SUCCEED, Event.FAIL, Event.RETRY, Event.CANCEL)
    ],
    ids=lambda happening: f"{happening.event}: {happening.name}",
)
def test_passed_deadline_wins_over_whatever_comes_after_it(
    probe: LedgerProbe, state: State, happening: Happening
) -> None:
    """Each command that would move an overdue job ends it as expired, without waiting for a sweep."""
    job_id = bring_to(probe, state)
    probe.pass_deadline(job_id)
    before = probe.trace(job_id)

    announced = act_and_listen(probe, happening, job_id)

    if (state, happening.event) in TRANSITIONS:
        assert announced == [job_id]
        assert probe.trace(job_id).state is State.EXPIRED
        assert probe.get(job_id).result is None
    else:
        assert probe.trace(job_id) == before


@pytest.mark.parametrize(
    "act",
    [
        lambda p, job: p.ledger.run(p.commands.complete(STRANGER, [failure(job, CORRUPT)])),
        lambda p, job: p.ledger.run(p.commands.release(STRANGER, [Return(job)])),
        lambda p, job: p.ledger.run(p.commands.lose(STRANGER, [job])),
        lambda p, job: p.ledger.run(p.commands.renew([(STRANGER, job)])),
    ],
    ids=["fail", "release", "lose", "renew"],
)
def test_lease_guards_a_job_from_strangers(probe: LedgerProbe, act: Act) -> None:
    """Only who holds the lease can fail, give back, lose or keep the job."""
    job_id = bring_to(probe, State.RUNNING)
    before = probe.trace(job_id)

    act(probe, job_id)

    assert probe.trace(job_id) == before


def test_late_result_counts_while_the_job_runs_elsewhere(probe: LedgerProbe) -> None:
    """A worker that lost its lease still brings the answer, and the second answer changes nothing."""
    job_id = bring_to(probe, State.RUNNING)
    probe.lapse_lease(job_id)
    probe.sweep()
    assert probe.claim(STRANGER, job_id) == [job_id]

    first = probe.ledger.run(probe.commands.complete(OWNER, [success(job_id)]))
    second = probe.ledger.run(probe.commands.complete(STRANGER, [success(job_id, [{"class_id": 1}])]))

    assert first == second == ["succeeded"]
    assert probe.get(job_id).result == RESULT


@pytest.mark.parametrize("refund", [False, True], ids=["spent", "refunded"])
def test_success_wipes_the_error_of_an_earlier_try(probe: LedgerProbe, *, refund: bool) -> None:
    """A job that went well in the end tells of no error, and one that waits tells of the last."""
    job_id = bring_to(probe, State.RUNNING)
    overloaded = ModelOverloaded("The queue of the model is full.")
    probe.ledger.run(probe.commands.release(OWNER, [Return(job_id, refund=refund, error=overloaded)]))
    assert (probe.get(job_id).error or {})["code"] == "model_overloaded"

    probe.claim(STRANGER, job_id)
    probe.ledger.run(probe.commands.complete(STRANGER, [success(job_id)]))

    assert probe.get(job_id).error is None


def test_record_tells_a_job_s_whole_life(ledger: Ledger, probe: LedgerProbe) -> None:
    """What was asked, when what happened and what came of it can be read from the record."""
    job = new_job(version="2", top_k=3, metadata={"album": "été"}, expires_in_ms=HOUR_MS)
    ledger.run(ledger.commands.accept([job]))
    claimed, _ = ledger.run(ledger.commands.claim(OWNER, [job.id]))
    ledger.run(ledger.commands.complete(OWNER, [success(job.id)]))

    record = probe.get(job.id)

    assert (claimed[0].image, claimed[0].version, claimed[0].options["top_k"]) == (job.image, "2", 3)
    assert claimed[0].remaining_ms is not None
    assert HOUR_MS - 60_000 < claimed[0].remaining_ms <= HOUR_MS
    assert (record.state, record.version, record.attempts) == (State.SUCCEEDED, "2", 1)
    assert (record.result, record.run, record.error) == (RESULT, RUN, None)
    assert record.options == {"top_k": 3, "metadata": {"album": "été"}}
    assert record.deadline_ms == record.created_ms + HOUR_MS
    assert record.started_ms is not None
    assert record.finished_ms is not None
    assert record.created_ms <= record.started_ms <= record.finished_ms


def test_refund_gives_the_attempt_back(probe: LedgerProbe) -> None:
    """A run that was none of the job's fault does not count, and a pause is counted apart."""
    job_id = bring_to(probe, State.RUNNING)
    attempts = probe.get(job_id).attempts

    probe.ledger.run(probe.commands.release(OWNER, [Return(job_id, delay_ms=HOUR_MS, refund=True)]))
    probe.end_pause(job_id)
    claimed, _ = probe.ledger.run(probe.commands.claim(STRANGER, [job_id]))

    assert (claimed[0].attempts, claimed[0].pauses) == (attempts, 1)


def test_job_whose_image_is_gone_is_claimed_without_one(probe: LedgerProbe) -> None:
    """Whoever claims it is told, and its neighbour has its own."""
    lost, kept = probe.accept(2)
    probe.client.delete(f"{probe.prefix}input:{lost.job_id}")

    claimed, _ = probe.ledger.run(probe.commands.claim(STRANGER, [lost.job_id, kept.job_id]))

    assert [(job.id, job.image) for job in claimed] == [(lost.job_id, None), (kept.job_id, new_job().image)]


def test_unknown_job_is_told_by_every_command(ledger: Ledger) -> None:
    """An id that never was or is no longer kept is answered, not created."""
    commands, nobody = ledger.commands, new_job().id

    claimed, refused = ledger.run(commands.claim(OWNER, [nobody]))

    assert (claimed, [refusal.reason for refusal in refused]) == ([], ["unknown"])
    assert ledger.run(commands.complete(OWNER, [success(nobody)])) == ["unknown"]
    assert ledger.run(commands.release(OWNER, [Return(nobody)]))[0].state == "unknown"
    assert ledger.run(commands.lose(OWNER, [nobody]))[0].state == "unknown"
    assert ledger.run(commands.cancel([nobody])) == ["unknown"]
    assert ledger.run(commands.renew([(OWNER, nobody)])) == 0
    assert ledger.get(nobody) is None


def test_answers_come_in_the_order_of_the_question(probe: LedgerProbe) -> None:
    """In a batch of jobs in different states each gets its own answer."""
    states = [State.SUCCEEDED, State.QUEUED, State.RUNNING, State.CANCELED]
    job_ids = [bring_to(probe, state) for state in states]

    claimed, refused = probe.ledger.run(probe.commands.claim(STRANGER, job_ids))

    assert [job.id for job in claimed] == [job_ids[1]]
    assert [(refusal.id, refusal.reason) for refusal in refused] == [
        (job_ids[0], "succeeded"), (job_ids[2], "running"), (job_ids[3], "canceled")
    ]  # fmt: skip


# What follows: the reply of a command was lost, so it is said again.


def test_accept_said_twice_is_one_job(probe: LedgerProbe) -> None:
    """The second answer is the first, and nothing is counted twice, not even after the job has moved on."""
    command = probe.commands.accept([new_job(image=b"12345", expires_in_ms=HOUR_MS)])
    first = probe.ledger.run(command)
    assert first[0].ticket is not None
    job_id = first[0].ticket.job_id
    before = probe.trace(job_id)

    assert probe.ledger.run(command) == first
    assert probe.trace(job_id) == before
    assert probe.waiting_bytes() == 5

    probe.claim(OWNER, job_id)
    assert probe.ledger.run(command) == first
    assert probe.trace(job_id).state is State.RUNNING


def test_claim_said_twice_is_one_attempt(probe: LedgerProbe) -> None:
    """The same owner gets the same jobs again, under the same lease and as the same attempt."""
    job_ids = [ticket.job_id for ticket in probe.accept(3)]
    command = probe.commands.claim(OWNER, job_ids)

    (first, _), (second, refused) = probe.ledger.run(command), probe.ledger.run(command)

    assert second == first
    assert refused == []
    assert [job.attempts for job in second] == [1, 1, 1]


def test_complete_said_twice_ends_once(probe: LedgerProbe) -> None:
    """The second answer tells the same states; results and counters stay."""
    good, bad = bring_to(probe, State.RUNNING), bring_to(probe, State.RUNNING)
    command = probe.commands.complete(OWNER, [success(good), failure(bad, CORRUPT)])
    first = probe.ledger.run(command)
    before = [probe.trace(good), probe.trace(bad), probe.client.hgetall(f"{probe.prefix}stats:m")]

    assert probe.ledger.run(command) == first == ["succeeded", "failed"]
    assert [probe.trace(good), probe.trace(bad), probe.client.hgetall(f"{probe.prefix}stats:m")] == before


@pytest.mark.parametrize("delay_ms", [0, HOUR_MS])
def test_release_said_twice_gives_back_once(probe: LedgerProbe, delay_ms: int) -> None:
    """The second answer is the job's state without a ticket; no attempt is refunded and no pause counted again."""
    job_id = bring_to(probe, State.RUNNING)
    error = ModelFailed("The model failed inside.")
    command = probe.commands.release(OWNER, [Return(job_id, delay_ms, refund=True, error=error)])
    (first,) = probe.ledger.run(command)
    before = probe.trace(job_id)

    (second,) = probe.ledger.run(command)

    assert (first.ticket is None) == bool(delay_ms)
    assert (second.state, second.ticket) == ("queued", None)
    assert probe.trace(job_id) == before


def test_lose_said_twice_loses_once(probe: LedgerProbe) -> None:
    """The second answer is the job's state without a ticket."""
    job_id = bring_to(probe, State.RUNNING)
    command = probe.commands.lose(OWNER, [job_id])
    (first,) = probe.ledger.run(command)
    before = probe.trace(job_id)

    (second,) = probe.ledger.run(command)

    assert first.ticket is not None
    assert replace(first, ticket=None) == second
    assert probe.trace(job_id) == before


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
def test_cancel_said_twice_cancels_once(probe: LedgerProbe, state: State) -> None:
    """The second answer is that the job is over; the record stays as the first left it."""
    job_id = bring_to(probe, state)
    command = probe.commands.cancel([job_id])
    first = probe.ledger.run(command)
    before = probe.trace(job_id)

    second = probe.ledger.run(command)

    assert (first, second) == (["canceled"], ["finished"])
    assert probe.trace(job_id) == before


def test_renew_keeps_the_lease_from_now(probe: LedgerProbe, settings: Settings) -> None:
    """A renewed lease runs its full length again; one that was taken back is not revived."""
    job_id = bring_to(probe, State.RUNNING)
    lapsed = bring_to(probe, State.QUEUED)
    probe.lapse_lease(job_id)

    assert probe.ledger.run(probe.commands.renew([(OWNER, job_id), (OWNER, lapsed)])) == 1

    left_ms = probe.trace(job_id).scores["running:m"] - probe.now_ms()
    assert 0 < left_ms <= settings.lease_seconds * 1000
    assert probe.trace(lapsed).places == {"queued:m:normal", "deadlines"}
