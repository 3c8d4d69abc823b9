"""What holds of the ledger at every moment, whatever workers, clients, the sweeper and time do to it, in any order.

Hypothesis makes up the stories. Beside the ledger each job has a shadow that follows the table of states; after
each step all of Redis's keys are read and compared with the shadows.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pytest
import redis
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.integration.ledger_probe import HOUR_MS, Announcements, LedgerProbe, failure, indexes_of, new_job, success
from tests.integration.ledger_shadow import Shadow, SharedAnswers
from tidegate.commands import Command, Return, Returned, Verdict
from tidegate.errors import ImageCorrupt, ModelFailed, ModelOverloaded, TidegateError
from tidegate.jobs import LANES, Event, Priority, State
from tidegate.ledger import Ledger
from tidegate.settings import Settings

MODELS = ("m", "another")
#: Nobody, where there are no keys; and two that share everything but their answers.
TENANTS = ("", "alice", "bob")
WORKERS = ("worker-1", "worker-2")
NO_TICKETS = [(model, ["none"] * len(Priority) * LANES) for model in MODELS]
STEPS = 50
MAX_EXAMPLES = 100
#: One whose cause lies with us or the model, and one whose cause lies with the client.
FAILURES = (ModelFailed("The model failed inside."), ImageCorrupt("The file is truncated."))

MOST_JOBS = 16
#: Few at a time, so that much happens to each.
MOST_OPEN_JOBS = 4
#: Which of the jobs that are in question; taken modulo their number.
picks = st.sets(st.integers(min_value=0, max_value=MOST_JOBS - 1), min_size=1, max_size=3)
one_pick = st.sets(st.integers(min_value=0, max_value=MOST_JOBS - 1), min_size=1, max_size=1)
#: Now and then somebody means jobs that are none of theirs.
strays = st.sampled_from([False, False, False, True])
workers = st.sampled_from(WORKERS)


def some_wait(machine: LedgerMachine) -> bool:
    """Whether there is anything to take up."""
    return any(shadow.state is State.QUEUED for shadow in machine.jobs.values())


def some_run(machine: LedgerMachine) -> bool:
    """Whether any worker has something."""
    return any(shadow.state is State.RUNNING for shadow in machine.jobs.values())


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, clients, the sweeper and time, each doing whatever it can at any moment."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        super().__init__()
        self.settings = settings.model_copy(
            update={
                "key_prefix": f"{settings.key_prefix}{uuid.uuid4().hex[:8]}:",
                # Few, so that stories get to the last one.
                "max_attempts": 2,
                # Longer than a story takes on a busy machine: only what a rule lets pass has passed.
                "lease_seconds": 7200.0,
                "sweep_seconds": 1800.0,
            }
        )
        self.ledger = Ledger(client, self.settings)
        self.commands = self.ledger.commands
        self.probe = LedgerProbe(self.ledger)
        self.jobs: dict[str, Shadow] = {}
        self.answers = SharedAnswers()
        self.last: Command[Any] | None = None
        self.announced: Counter[str] = Counter()
        self.announcements = Announcements(self.ledger)
        self.announcements.__enter__()

    def teardown(self) -> None:
        """Leave no connection and no key."""
        self.announcements.__exit__(None, None, None)
        left = [self.probe.prefix + key for key in self.probe.all_keys()]
        if left:
            self.probe.client.delete(*left)

    def run(self, command: Command[Any]) -> Any:
        """Carry a command out, and remember it for the case that its reply is lost."""
        self.last = command
        return self.ledger.run(command)

    def chosen(self, picked: Iterable[int], concerned: Callable[[Shadow], bool], *, stray: bool = False) -> list[str]:
        """Job ids for numbers, each once: of those that are concerned, or of all when it is a stray or none is."""
        among = [job_id for job_id, shadow in self.jobs.items() if stray or concerned(shadow)] or list(self.jobs)
        return list(dict.fromkeys(among[number % len(among)] for number in sorted(picked)))

    def busy(self, owner: str) -> str:
        """This worker, or another that runs something where this one does not."""
        return min(
            WORKERS, key=lambda worker: (not any(s.held_by(worker) for s in self.jobs.values()), worker != owner)
        )

    def open_jobs(self) -> int:
        """How many have not ended."""
        return sum(not shadow.state.terminal for shadow in self.jobs.values())

    # Clients

    @initialize(count=st.integers(min_value=1, max_value=3))
    def begin(self, count: int) -> None:
        """A story begins with some jobs."""
        for _ in range(count):
            self.accept("m", Priority.NORMAL, "", size=3, has_deadline=True, shared=False)

    @precondition(lambda self: len(self.jobs) < MOST_JOBS and self.open_jobs() < MOST_OPEN_JOBS)
    @rule(
        model=st.sampled_from(MODELS),
        priority=st.sampled_from(list(Priority)),
        size=st.integers(min_value=1, max_value=50),
        has_deadline=st.booleans(),
        tenant=st.sampled_from(TENANTS),
        shared=st.booleans(),
    )
    def accept(
        self,
        model: str,
        priority: Priority,
        tenant: str,
        *,
        size: int,
        has_deadline: bool,
        shared: bool,
    ) -> None:
        """A client hands a job in."""
        expires_in_ms = HOUR_MS if has_deadline else None
        fields = {"model": model, "priority": priority, "expires_in_ms": expires_in_ms, "tenant": tenant}
        key = f"3600:{tenant}-{model}" if shared else ""
        job = new_job(image=b"x" * size, answer_key=key, **fields)
        (admission,) = self.run(self.commands.accept([job]))
        shadow = self.jobs[job.id] = Shadow(model, priority, size, has_deadline, tenant=tenant, answer_key=key)
        if key in self.answers.known:
            assert admission.verdict is Verdict.ANSWERED
            shadow.state, shadow.answered = State.SUCCEEDED, True
        else:
            shadow.lane = admission.ticket.lane

    @precondition(lambda self: self.open_jobs() > 1)
    @rule(picked=one_pick, stray=strays)
    def cancel(self, picked: set[int], stray: bool) -> None:  # noqa: FBT001 - drawn
        """Clients no longer want some."""
        job_ids = self.chosen(picked, lambda shadow: not shadow.state.terminal, stray=stray)
        answers = self.run(self.commands.cancel(job_ids))
        for job_id, answer in zip(job_ids, answers, strict=True):
            shadow = self.jobs[job_id]
            assert answer == (shadow.state.value if shadow.meet_in_time(Event.CANCEL) else "finished")

    # Workers

    @precondition(some_wait)
    @rule(owner=workers, picked=picks, stray=strays)
    def claim_together(self, owner: str, picked: set[int], stray: bool) -> None:  # noqa: FBT001 - drawn
        """A worker takes some up as one batch."""
        self._claim(owner, self.chosen(picked, lambda shadow: shadow.state is State.QUEUED, stray=stray), alone=False)

    @precondition(some_wait)
    @rule(owner=workers, picked=one_pick, stray=strays)
    def claim_alone(self, owner: str, picked: set[int], stray: bool) -> None:  # noqa: FBT001 - drawn
        """A worker takes one up alone."""
        self._claim(owner, self.chosen(picked, lambda shadow: shadow.state is State.QUEUED, stray=stray), alone=True)

    @precondition(some_wait)
    @rule(owner=workers)
    def claim_all(self, owner: str) -> None:
        """A worker takes up whatever it can get."""
        for job_id in list(self.jobs):
            self._claim(owner, [job_id], alone=True)

    def _claim(self, owner: str, job_ids: list[str], *, alone: bool) -> None:
        claim = partial(Shadow.claim, owner=owner, alone=alone, answers=self.answers)
        expected = {job_id: claim(self.jobs[job_id]) for job_id in job_ids}
        claimed, refused = self.run(self.commands.claim(owner, job_ids, alone=alone))
        assert {job.id: "claimed" for job in claimed} | {refusal.id: refusal.reason for refusal in refused} == expected
        assert all(job.attempts == self.jobs[job.id].attempts for job in claimed)
        assert all(len(job.image) == self.jobs[job.id].size for job in claimed)

    @precondition(some_run)
    @rule(owner=workers, picked=picks, error=st.sampled_from([None, *FAILURES]), stray=strays)
    def complete(self, owner: str, picked: set[int], error: TidegateError | None, stray: bool) -> None:  # noqa: FBT001
        """A worker brings outcomes, perhaps late, perhaps of jobs that are another's by now."""
        owner = self.busy(owner)
        job_ids = self.chosen(picked, lambda shadow: shadow.held_by(owner), stray=stray)
        outcomes = [failure(job_id, error) if error else success(job_id) for job_id in job_ids]
        for job_id in job_ids:
            shadow = self.jobs[job_id]
            if (error is None or shadow.held_by(owner)) and shadow.meet_in_time(Event.FAIL if error else Event.SUCCEED):
                shadow.ours = shadow.state is State.FAILED and isinstance(error, ModelFailed)
                self.answers.tell(shadow, self.jobs.values())
        assert self.run(self.commands.complete(owner, outcomes)) == [self.jobs[job_id].state for job_id in job_ids]

    @precondition(some_run)
    @rule(owner=workers, picked=picks, delay_ms=st.sampled_from([0, HOUR_MS]), refund=st.booleans(), stray=strays)
    def release(self, owner: str, picked: set[int], delay_ms: int, refund: bool, stray: bool) -> None:  # noqa: FBT001 - drawn
        """A worker gives some back, now or for later."""
        owner = self.busy(owner)
        job_ids = self.chosen(picked, lambda shadow: shadow.held_by(owner), stray=stray)
        error = ModelOverloaded("The queue of the model is full.")
        returns = [Return(job_id, delay_ms, refund, error) for job_id in job_ids]
        returned = self.run(self.commands.release(owner, returns))
        for job_id, answer in zip(job_ids, returned, strict=True):
            shadow = self.jobs[job_id]
            if shadow.held_by(owner) and shadow.meet_in_time(Event.RETRY) and not shadow.overdue:
                shadow.rests = delay_ms > 0
                shadow.attempts -= refund
                assert answer.state == ("deferred" if shadow.rests else "queued")
                assert (answer.ticket is None) == shadow.rests
            else:
                assert answer == Returned(shadow.state, None)

    @precondition(some_run)
    @rule(owner=workers, picked=picks, stray=strays)
    def lose(self, owner: str, picked: set[int], stray: bool) -> None:  # noqa: FBT001 - drawn
        """A worker's child dies with some."""
        owner = self.busy(owner)
        job_ids = self.chosen(picked, lambda shadow: shadow.held_by(owner), stray=stray)
        returned = self.run(self.commands.lose(owner, job_ids))
        max_attempts = self.settings.max_attempts
        for job_id, answer in zip(job_ids, returned, strict=True):
            shadow = self.jobs[job_id]
            wants_ticket = shadow.held_by(owner) and shadow.lose(max_attempts, suspect=True)
            assert (answer.state, answer.ticket is not None) == (shadow.state, wants_ticket)

    @precondition(some_run)
    @rule(owner=workers, picked=picks, stray=strays)
    def renew(self, owner: str, picked: set[int], stray: bool) -> None:  # noqa: FBT001 - drawn
        """A worker says that it is still at it."""
        owner = self.busy(owner)
        job_ids = self.chosen(picked, lambda shadow: shadow.held_by(owner), stray=stray)
        held = [job_id for job_id in job_ids if self.jobs[job_id].held_by(owner)]
        for job_id in held:
            self.jobs[job_id].lapsed = False
        assert self.run(self.commands.renew((owner, job_id) for job_id in job_ids)) == len(held)

    # The sweeper

    @rule()
    def sweep(self) -> None:
        """A worker looks after what is due; each job that is queued by it gets one ticket."""
        wanted: Counter[str] = Counter()
        for job_id, shadow in self.jobs.items():
            if shadow.overdue and not shadow.state.terminal:
                shadow.meet(Event.EXPIRE)
            elif shadow.lapsed:
                wanted[job_id] += shadow.lose(self.settings.max_attempts, suspect=shadow.attempts > 1)
            elif shadow.rested or shadow.ticketless:
                shadow.rested = shadow.ticketless = False
                wanted[job_id] += 1
        self.probe.client.set(f"{self.probe.prefix}swept", "1", px=60_000)
        swept = self.run(self.commands.sweep(NO_TICKETS, lock=False))
        assert Counter(ticket.job_id for ticket in swept.tickets) == +wanted
        open_models = {shadow.model for shadow in self.jobs.values() if not shadow.state.terminal}
        assert set(self.ledger.models()) == open_models

    @precondition(lambda self: self.last is not None)
    @rule()
    def lose_the_reply(self) -> None:
        """The last command's reply never came, so it is said again: whatever it answers, it changes nothing more."""
        assert self.last is not None
        self.ledger.run(self.last)

    # Operators

    @precondition(lambda self: len(self.jobs) < MOST_JOBS and any(shadow.ours for shadow in self.jobs.values()))
    @rule(picked=picks, stray=strays)
    def requeue(self, picked: set[int], stray: bool) -> None:  # noqa: FBT001 - drawn
        """Somebody has some run again: each dead letter, once, as a new job without a deadline."""
        letters = {job_id: new_job().id for job_id in self.chosen(picked, lambda shadow: shadow.ours, stray=stray)}
        answers = self.run(self.commands.requeue(letters))
        for (job_id, new_id), answer in zip(letters.items(), answers, strict=True):
            shadow = self.jobs[job_id]
            assert (answer.state == "queued") == shadow.ours
            if shadow.ours:
                shadow.ours, shadow.final = False, None
                self.jobs[new_id] = replace(
                    Shadow(shadow.model, shadow.priority, shadow.size, has_deadline=False),
                    suspect=shadow.suspect,
                    tenant=shadow.tenant,
                    lane=answer.ticket.lane,
                )

    # Time

    @rule(picked=one_pick)
    def deadlines_pass(self, picked: set[int]) -> None:
        """Some had to be over by now."""
        self._let_time_pass(picked, self.probe.pass_deadline, "overdue", lambda shadow: "deadlines" in shadow.places)

    @rule(picked=picks)
    def leases_lapse(self, picked: set[int]) -> None:
        """Some have not been renewed."""
        self._let_time_pass(picked, self.probe.lapse_lease, "lapsed", lambda shadow: shadow.state is State.RUNNING)

    @rule(picked=picks)
    def pauses_end(self, picked: set[int]) -> None:
        """Some have rested long enough."""
        rested = self._let_time_pass(picked, self.probe.end_pause, "rested", lambda shadow: shadow.rests)
        for shadow in rested:
            shadow.rests = False

    @rule(picked=picks)
    def tickets_get_lost(self, picked: set[int]) -> None:
        """Some have waited for so long that their tickets must be gone."""
        self._let_time_pass(
            picked,
            self.probe.age,
            "ticketless",
            lambda shadow: shadow.state is State.QUEUED and not shadow.rests and not shadow.rested,
        )

    def _let_time_pass(
        self, picked: set[int], move: Callable[[str], object], mark: str, concerns: Callable[[Shadow], bool]
    ) -> list[Shadow]:
        # A command that is said again after time has passed is another command.
        self.last = None
        job_ids = [job_id for job_id in self.chosen(picked, concerns) if concerns(self.jobs[job_id])]
        for job_id in job_ids:
            move(job_id)
            setattr(self.jobs[job_id], mark, True)
        return [self.jobs[job_id] for job_id in job_ids]

    # What always holds

    @invariant()
    def records_follow_the_table(self) -> None:
        """State, attempts and lease are what the table of states makes of the story; ended jobs never change."""
        for job_id, trace in self.probe.traces(self.jobs).items():
            shadow = self.jobs[job_id]
            assert trace.state is shadow.state
            assert int(trace.record.get(b"attempts", 0)) == shadow.attempts
            assert (b"suspect" in trace.record) == shadow.suspect
            if shadow.state is State.RUNNING:
                assert trace.record[b"lease"].decode() == shadow.owner
            if shadow.state.terminal:
                shadow.final = shadow.final or trace
                assert trace == shadow.final
                assert (b"result" in trace.record) == (shadow.state is State.SUCCEEDED)
                assert not {b"result", b"error"} <= set(trace.record)

    @invariant()
    def indexes_agree_with_the_records(self) -> None:
        """Each open job stands in exactly the indexes that its state asks for, and nothing else stands in any."""
        indexes = ["deadlines", *(index for model in MODELS for index in indexes_of(model))]
        with self.probe.client.pipeline() as pipeline:
            for index in indexes:
                pipeline.zrange(self.probe.prefix + index, 0, -1)
            members = pipeline.execute()
        found = {(index, job_id.decode()) for index, ids in zip(indexes, members, strict=True) for job_id in ids}
        assert found == {(place, job_id) for job_id, shadow in self.jobs.items() for place in shadow.places}

    @invariant()
    def nothing_outlives_its_job(self) -> None:
        """An input goes with the end and a record some time after; open jobs keep both; the bytes are counted."""
        for job_id, trace in self.probe.traces(self.jobs).items():
            shadow = self.jobs[job_id]
            assert (trace.image is not None) == shadow.keeps_image
            assert trace.expires == shadow.state.terminal
            assert (b"same" in trace.record) == bool(shadow.answer_key and not shadow.answered)
        known = {f"{kind}:{job_id}" for job_id in self.jobs for kind in ("job", "input")} | {"deadlines"}
        known |= {key for model in MODELS for key in (f"stats:{model}", *indexes_of(model))}
        known |= {"open"} if self.probe.open_counts() else set()
        known |= {f"lanes:{model}" for model in MODELS} | {f"tenant:{tenant}" for tenant in TENANTS} | {"retired"}
        known |= {shadow.list for shadow in self.jobs.values()}
        known |= {f"{kind}:{shadow.answer_key}" for shadow in self.jobs.values() for kind in ("cache", "same", "first")}
        known |= {"dead", "dead:model_failed", "dead:worker_lost"} if self.probe.grave_counts() else set()
        assert self.probe.all_keys() <= known | {"models", "swept"}

    @invariant()
    def what_weighs_is_counted(self) -> None:
        """The jobs that are open and the bytes of their images are counted, and those of dead letters apart."""
        living = [shadow for shadow in self.jobs.values() if not shadow.state.terminal]
        counts: Counter[str] = Counter(jobs=len(living), bytes=sum(shadow.size for shadow in living))
        for shadow in living:
            counts[f"bytes:{shadow.model}"] += shadow.size
        assert self.probe.open_counts() == +counts
        dead = [shadow for shadow in self.jobs.values() if shadow.ours]
        graves = self.probe.grave_counts()
        assert graves.pop("bytes", 0) == sum(shadow.size for shadow in dead)
        assert sum(graves.values()) == len(dead)

    @invariant()
    def ends_are_announced_once(self) -> None:
        """The ids that were published are those of the jobs that ended, each once."""
        self.announced.update(self.announcements.read())
        told = [job_id for job_id, shadow in self.jobs.items() if shadow.state.terminal and not shadow.answered]
        assert self.announced == Counter(told)

    @invariant()
    def every_tenant_has_its_own(self) -> None:
        """Each job is in one list of its tenant; what a tenant has open is counted, and in one lane of a model."""
        lists: dict[str, set[str]] = {}
        counts: dict[str, Counter[str]] = {}
        for job_id, shadow in self.jobs.items():
            lists.setdefault(shadow.list, set()).add(job_id)
            if not shadow.state.terminal:
                mine = counts.setdefault(f"tenant:{shadow.tenant}", Counter())
                mine.update({"jobs": 1, "bytes": shadow.size, f"jobs:{shadow.model}": 1})
                assert mine.setdefault(f"lane:{shadow.model}", shadow.lane) == shadow.lane
                counts.setdefault(f"lanes:{shadow.model}", Counter())[str(shadow.lane)] += 1
        assert self.probe.own_lists() == lists
        assert self.probe.hashes("tenant:*", "lanes:*") == counts


# A story that fails is made shorter for up to five minutes before it is told.
@pytest.mark.timeout(400)
def test_any_story_leaves_the_ledger_consistent(redis_client: redis.Redis, settings: Settings) -> None:
    """Terminal is final, one winner, indexes agree with records, no key outlives its job, ends are told once."""

    class Machine(LedgerMachine):
        def __init__(self) -> None:
            super().__init__(redis_client, settings)

    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(
            max_examples=MAX_EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=os.environ.get("CI") == "true",
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_nothing_is_left_when_the_results_have_expired(redis_client: redis.Redis, settings: Settings) -> None:
    """After the last job has ended and a sweep has passed, every key has a time at which it goes, and goes."""
    short = settings.model_copy(update={"result_ttl_seconds": 2, "dead_letter_ttl_seconds": 2})
    probe = LedgerProbe(Ledger(redis_client, short))
    good, bad, unwanted, overdue, lost = (ticket.job_id for ticket in probe.accept(5, expires_in_ms=HOUR_MS))
    probe.claim(WORKERS[0], good, bad, lost)
    probe.ledger.run(probe.commands.complete(WORKERS[0], [success(good), failure(bad, FAILURES[0])]))
    probe.ledger.run(probe.commands.cancel([unwanted]))
    probe.pass_deadline(overdue)
    probe.spend_attempts(lost, short.max_attempts)
    probe.lapse_lease(lost)

    assert probe.sweep().tickets == ()

    left = probe.all_keys() - {"swept"}
    own = {f"own::m:{state}" for state in ("succeeded", "failed", "canceled", "expired")}
    graves = {"dead", "dead:model_failed", "dead:worker_lost", f"input:{bad}", f"input:{lost}"}
    records = {f"job:{job_id}" for job_id in (good, bad, unwanted, overdue, lost)}
    assert left == records | {"stats:m", "retired"} | graves | own
    assert all(0 < redis_client.pttl(probe.prefix + key) <= 2000 for key in left if not key.startswith("dead"))
    deadline = time.monotonic() + 10
    while probe.all_keys() - {"swept"}:
        probe.sweep()
        assert time.monotonic() < deadline
        time.sleep(0.02)
