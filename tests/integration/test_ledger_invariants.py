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
from typing import Any

import hypothesis.strategies as st
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

from tests.integration.ledger_probe import HOUR_MS, LedgerProbe, failure, indexes_of, new_job, success
from tests.integration.ledger_shadow import Shadow
from tidegate.commands import Command, Return, Returned
from tidegate.errors import ModelFailed
from tidegate.jobs import Event, Priority, State
from tidegate.ledger import Ledger
from tidegate.settings import Settings

MODELS = ("m", "another")
WORKERS = ("worker-1", "worker-2")
NO_TICKETS = [(model, ["none:0", "none:3", "none:6"]) for model in MODELS]
STEPS = 40

#: Which of the jobs there are so far; taken modulo their number.
picks = st.sets(st.integers(min_value=0, max_value=11), min_size=1, max_size=4)
workers = st.sampled_from(WORKERS)


class LedgerMachine(RuleBasedStateMachine):
    """Two workers, clients, the sweeper and time, each doing whatever it can at any moment."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        super().__init__()
        self.settings = settings.model_copy(update={"key_prefix": f"{settings.key_prefix}{uuid.uuid4().hex[:8]}:"})
        self.ledger = Ledger(client, self.settings)
        self.commands = self.ledger.commands
        self.probe = LedgerProbe(self.ledger)
        self.jobs: dict[str, Shadow] = {}
        self.last: Command[Any] | None = None
        self.announced: Counter[str] = Counter()
        self.ended = client.pubsub()
        self.ended.subscribe(self.commands.ended_channel)

    def teardown(self) -> None:
        """Leave no connection and no key."""
        self.ended.close()
        left = [self.probe.prefix + key for key in self.probe.all_keys()]
        if left:
            self.probe.client.delete(*left)

    def run(self, command: Command[Any]) -> Any:
        """Carry a command out, and remember it for the case that its reply is lost."""
        self.last = command
        return self.ledger.run(command)

    def chosen(self, picked: Iterable[int]) -> list[str]:
        """Job ids for numbers; each once."""
        job_ids = list(self.jobs)
        return list(dict.fromkeys(job_ids[number % len(job_ids)] for number in sorted(picked)))

    # Clients

    @initialize(count=st.integers(min_value=1, max_value=3))
    def begin(self, count: int) -> None:
        """A story begins with some jobs."""
        for _ in range(count):
            self.accept("m", Priority.NORMAL, size=3, has_deadline=True)

    @precondition(lambda self: len(self.jobs) < 12)
    @rule(
        model=st.sampled_from(MODELS),
        priority=st.sampled_from(list(Priority)),
        size=st.integers(min_value=1, max_value=50),
        has_deadline=st.booleans(),
    )
    def accept(self, model: str, priority: Priority, size: int, has_deadline: bool) -> None:  # noqa: FBT001 - drawn
        """A client hands a job in."""
        expires_in_ms = HOUR_MS if has_deadline else None
        job = new_job(model=model, priority=priority, image=b"x" * size, expires_in_ms=expires_in_ms)
        (admission,) = self.run(self.commands.accept([job]))
        assert admission.ticket is not None
        self.jobs[job.id] = Shadow(model, priority, size, has_deadline)

    @rule(picked=picks)
    def cancel(self, picked: set[int]) -> None:
        """Clients no longer want some."""
        job_ids = self.chosen(picked)
        answers = self.run(self.commands.cancel(job_ids))
        for job_id, answer in zip(job_ids, answers, strict=True):
            shadow = self.jobs[job_id]
            assert answer == (shadow.state.value if shadow.meet_in_time(Event.CANCEL) else "finished")

    # Workers

    @rule(owner=workers, picked=picks, alone=st.booleans())
    def claim(self, owner: str, picked: set[int], alone: bool) -> None:  # noqa: FBT001 - drawn
        """A worker takes some up, or finds that it cannot."""
        job_ids = self.chosen(picked)
        expected = {job_id: self.jobs[job_id].claim(owner, alone=alone) for job_id in job_ids}
        claimed, refused = self.run(self.commands.claim(owner, job_ids, alone=alone))
        assert {job.id: "claimed" for job in claimed} | {refusal.id: refusal.reason for refusal in refused} == expected
        assert all(job.attempts == self.jobs[job.id].attempts for job in claimed)
        assert all(len(job.image) == self.jobs[job.id].size for job in claimed)

    @rule(owner=workers, picked=picks, good=st.booleans())
    def complete(self, owner: str, picked: set[int], good: bool) -> None:  # noqa: FBT001 - drawn
        """A worker brings outcomes, perhaps late, perhaps of jobs that are another's by now."""
        job_ids = self.chosen(picked)
        error = ModelFailed("The model failed inside.")
        outcomes = [success(job_id) if good else failure(job_id, error) for job_id in job_ids]
        for job_id in job_ids:
            if good or self.jobs[job_id].held_by(owner):
                self.jobs[job_id].meet_in_time(Event.SUCCEED if good else Event.FAIL)
        assert self.run(self.commands.complete(owner, outcomes)) == [self.jobs[job_id].state for job_id in job_ids]

    @rule(owner=workers, picked=picks, delay_ms=st.sampled_from([0, HOUR_MS]), refund=st.booleans())
    def release(self, owner: str, picked: set[int], delay_ms: int, refund: bool) -> None:  # noqa: FBT001 - drawn
        """A worker gives some back, now or for later."""
        job_ids = self.chosen(picked)
        returned = self.run(self.commands.release(owner, [Return(job_id, delay_ms, refund) for job_id in job_ids]))
        for job_id, answer in zip(job_ids, returned, strict=True):
            shadow = self.jobs[job_id]
            if shadow.held_by(owner) and shadow.meet_in_time(Event.RETRY) and not shadow.overdue:
                shadow.rests = delay_ms > 0
                shadow.attempts -= refund
                assert answer.state == ("deferred" if shadow.rests else "queued")
                assert (answer.ticket is None) == shadow.rests
            else:
                assert answer == Returned(shadow.state, None)

    @rule(owner=workers, picked=picks)
    def lose(self, owner: str, picked: set[int]) -> None:
        """A worker's child dies with some."""
        job_ids = self.chosen(picked)
        returned = self.run(self.commands.lose(owner, job_ids))
        max_attempts = self.settings.max_attempts
        for job_id, answer in zip(job_ids, returned, strict=True):
            shadow = self.jobs[job_id]
            wants_ticket = shadow.held_by(owner) and shadow.lose(max_attempts, suspect=True)
            assert (answer.state, answer.ticket is not None) == (shadow.state, wants_ticket)

    @rule(owner=workers, picked=picks)
    def renew(self, owner: str, picked: set[int]) -> None:
        """A worker says that it is still at it."""
        job_ids = self.chosen(picked)
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

    # Time

    @rule(picked=picks)
    def deadlines_pass(self, picked: set[int]) -> None:
        """Some had to be over by now."""
        self._let_time_pass(picked, self.probe.pass_deadline, "overdue", lambda shadow: shadow.has_deadline)

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
        concerned = [job_id for job_id in self.chosen(picked) if concerns(self.jobs[job_id])]
        for job_id in concerned:
            if not self.jobs[job_id].state.terminal:
                move(job_id)
                setattr(self.jobs[job_id], mark, True)
        return [self.jobs[job_id] for job_id in concerned]

    # What always holds

    @invariant()
    def records_follow_the_table(self) -> None:
        """State, attempts and lease are what the table of states makes of the story; ended jobs never change."""
        for job_id, shadow in self.jobs.items():
            trace = self.probe.trace(job_id)
            assert trace.state is shadow.state
            assert int(trace.record.get(b"attempts", 0)) == shadow.attempts
            assert (b"suspect" in trace.record) == shadow.suspect
            if shadow.state is State.RUNNING:
                assert trace.record[b"lease"].decode() == shadow.owner
            if shadow.state.terminal:
                shadow.final = shadow.final or trace
                assert trace == shadow.final
                assert (b"result" in trace.record) == (shadow.state is State.SUCCEEDED)

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
        for job_id, shadow in self.jobs.items():
            trace = self.probe.trace(job_id)
            assert (trace.image is None) == shadow.state.terminal
            assert trace.expires == shadow.state.terminal
        waiting = sum(shadow.size for shadow in self.jobs.values() if not shadow.state.terminal)
        assert self.probe.waiting_bytes() == waiting
        known = {f"{kind}:{job_id}" for job_id in self.jobs for kind in ("job", "input")} | {"deadlines"}
        known |= {key for model in MODELS for key in (f"stats:{model}", *indexes_of(model))}
        known |= {"bytes"} if waiting else set()
        assert self.probe.all_keys() <= known | {"models"}

    @invariant()
    def ends_are_announced_once(self) -> None:
        """The ids that were published are those of the jobs that ended, each once."""
        marker = uuid.uuid4().hex
        self.probe.client.publish(self.commands.ended_channel, marker)
        while (message := self._next_message()) != marker:
            self.announced.update(message.split())
        assert self.announced == Counter(job_id for job_id, shadow in self.jobs.items() if shadow.state.terminal)

    def _next_message(self) -> str:
        """Messages come in order, so all before the marker have come when the marker has."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            message = self.ended.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                return str(message["data"].decode())
        raise TimeoutError("nothing was published")


def test_any_story_leaves_the_ledger_consistent(redis_client: redis.Redis, settings: Settings) -> None:
    """Terminal is final, one winner, indexes agree with records, no key outlives its job, ends are told once."""

    class Machine(LedgerMachine):
        def __init__(self) -> None:
            super().__init__(redis_client, settings)

    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(
            max_examples=40,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=os.environ.get("CI") == "true",
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )


def test_nothing_is_left_when_the_results_have_expired(redis_client: redis.Redis, settings: Settings) -> None:
    """After the last job has ended and a sweep has passed, every key has a time at which it goes, and goes."""
    short = settings.model_copy(update={"result_ttl_seconds": 2})
    probe = LedgerProbe(Ledger(redis_client, short))
    good, bad, unwanted, overdue, lost = (ticket.job_id for ticket in probe.accept(5, expires_in_ms=HOUR_MS))
    probe.claim(WORKERS[0], good, bad, lost)
    error = ModelFailed("The model failed inside.")
    probe.ledger.run(probe.commands.complete(WORKERS[0], [success(good), failure(bad, error)]))
    probe.ledger.run(probe.commands.cancel([unwanted]))
    probe.pass_deadline(overdue)
    probe.spend_attempts(lost, short.max_attempts)
    probe.lapse_lease(lost)

    assert probe.sweep().tickets == ()

    left = probe.all_keys()
    assert left == {f"job:{job_id}" for job_id in (good, bad, unwanted, overdue, lost)} | {"stats:m"}
    assert all(0 < redis_client.pttl(probe.prefix + key) <= 2000 for key in left)
    deadline = time.monotonic() + 10
    while probe.all_keys():
        assert time.monotonic() < deadline
        time.sleep(0.02)
