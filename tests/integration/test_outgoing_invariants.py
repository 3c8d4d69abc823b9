"""What holds of the lines and the outbox at every moment, whatever workers, clients, hosts and time do, in any order.

Hypothesis makes up the stories: jobs whose image is fetched, and whose end is told, to and from two hosts.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from dataclasses import dataclass
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

from tests.integration.ledger_probe import HOUR_MS, MODEL, LedgerProbe, new_job, success
from tidegate.errors import UrlStatus
from tidegate.fetches import Fetch, add_piece, end_fetch, start_fetch
from tidegate.jobs import Destination, State, Webhook, new_job_id
from tidegate.ledger import Ledger
from tidegate.outgoing import FETCHES, WEBHOOKS, Errand, Outgoing, take
from tidegate.settings import Settings
from tidegate.webhooks.deliveries import (
    Attempt,
    Delivery,
    DeliveryState,
    Report,
    delivery_id,
    record,
    redeliver,
    start_delivery,
)

HOSTS = ("a:80", "b:80")
MOST_JOBS = 8
PER_HOST = 2
ROOM = 4
REPORTS = [
    Report(DeliveryState.DELIVERED, host_works=True, status=200),
    Report(DeliveryState.PENDING, host_works=False, delay_ms=HOUR_MS, status=500),
    Report(DeliveryState.FAILED, host_works=True, status=404),
    Report(DeliveryState.FAILED, host_works=True, status=410, gone=True),
    Report(DeliveryState.DEAD, host_works=False),
]

picks = st.integers(min_value=0, max_value=MOST_JOBS - 1)


@dataclass
class Told:
    """What a story has made of one job.

    Attributes:
        size: bytes of its image so far.
        events: the ends that are told; all where there are none.
        host: where its image is fetched from, while it is to be.
        hook_host: where its end is told.
    """

    hook_host: str
    host: str | None
    size: int
    events: frozenset[State]
    state: State = State.QUEUED

    def wants(self) -> bool:
        """Whether its end owes a delivery."""
        return self.state.terminal and (not self.events or self.state in self.events)


class OutgoingMachine(RuleBasedStateMachine):
    """Clients, two kinds of workers, the sweeper and time."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        super().__init__()
        self.settings = settings.model_copy(
            update={
                "key_prefix": f"{settings.key_prefix}{uuid.uuid4().hex[:8]}:",
                "outbound_host_connections": PER_HOST,
                "outbound_host_rate": 1_000_000,
                # Longer than a story takes on a busy machine: only what a rule lets pass has passed.
                "fetch_timeout_seconds": 300.0,
                "webhook_timeout_seconds": 60.0,
            }
        )
        self.ledger = Ledger(client, self.settings)
        self.probe = LedgerProbe(self.ledger)
        self.jobs: dict[str, Told] = {}
        self.errands: dict[Outgoing, list[Errand]] = {FETCHES: [], WEBHOOKS: []}
        self.fetches: list[Fetch] = []
        self.attempts: list[Attempt] = []

    def teardown(self) -> None:
        """Leave no key."""
        left = [self.probe.prefix + key for key in self.probe.all_keys()]
        if left:
            self.probe.client.delete(*left)

    @initialize()
    def begin(self) -> None:
        """A story begins with one job of each kind."""
        self.accept("a:80", "a:80", frozenset())
        self.accept("b:80", None, frozenset())

    @precondition(lambda self: len(self.jobs) < MOST_JOBS)
    @rule(
        hook_host=st.sampled_from(HOSTS),
        image_host=st.sampled_from([None, *HOSTS]),
        events=st.sampled_from([frozenset(), frozenset({State.SUCCEEDED}), frozenset({State.FAILED, State.CANCELED})]),
    )
    def accept(self, hook_host: str, image_host: str | None, events: frozenset[State]) -> None:
        """A client hands a job in."""
        job_id = new_job_id()
        at = Destination(f"http://{image_host}/", image_host) if image_host else None
        webhook = Webhook(Destination(f"http://{hook_host}/hook", hook_host), f"/v1/jobs/{job_id}", events)
        image = b"" if image_host else b"image"
        job = new_job(id=job_id, image=image, image_at=at, webhook=webhook, expires_in_ms=HOUR_MS)
        self.ledger.run(self.ledger.commands.accept([job]))
        self.jobs[job_id] = Told(hook_host, image_host, len(image), events)

    def chosen(self, number: int) -> str:
        """A job for a number: of those that have not ended, where there are any."""
        among = [job_id for job_id, told in self.jobs.items() if not told.state.terminal] or list(self.jobs)
        return among[number % len(among)]

    @rule(number=picks)
    def cancel(self, number: int) -> None:
        """A client no longer wants a job."""
        job_id = self.chosen(number)
        self.ledger.run(self.ledger.commands.cancel([job_id]))
        self._ended(job_id, State.CANCELED)

    @rule(number=picks)
    def expire(self, number: int) -> None:
        """A job's deadline passes, and somebody notices."""
        job_id = self.chosen(number)
        if not self.jobs[job_id].state.terminal:
            self.probe.pass_deadline(job_id)
            self.probe.sweep()
            self._ended(job_id, State.EXPIRED)

    @rule(number=picks)
    def run_job(self, number: int) -> None:
        """A worker takes a job up and brings its result; one whose image is not there yet it does not get."""
        job_id = self.chosen(number)
        told = self.jobs[job_id]
        can_run = not told.state.terminal and told.host is None
        assert (self.probe.claim("batch", job_id) == [job_id]) == can_run
        if can_run:
            self.ledger.run(self.ledger.commands.complete("batch", [success(job_id)]))
            self._ended(job_id, State.SUCCEEDED)

    @rule(work=st.sampled_from([FETCHES, WEBHOOKS]))
    def take(self, work: Outgoing) -> None:
        """A dispatcher takes what may go next."""
        self.errands[work] += self.ledger.run(take(work, self.settings, room=ROOM)).errands

    def next_errand(self, work: Outgoing, number: int, *, comes_twice: bool) -> Errand | None:
        """A message that a worker gets; another takes more where none is on its way."""
        if not self.errands[work]:
            self.take(work)
        if not self.errands[work]:
            return None
        at = number % len(self.errands[work])
        return self.errands[work][at] if comes_twice else self.errands[work].pop(at)

    @rule(number=picks, comes_twice=st.sampled_from([False, False, True]))
    def begin_fetch(self, number: int, comes_twice: bool) -> None:  # noqa: FBT001 - drawn
        """A worker begins to fetch, perhaps on a message that comes late or twice."""
        errand = self.next_errand(FETCHES, number, comes_twice=comes_twice)
        if errand is None:
            return
        fetch = self.ledger.run(start_fetch(errand, self.settings))
        if fetch is not None:
            self.fetches.append(fetch)
            self.jobs[fetch.job_id].size = 0
        elif self.probe.get(errand.id).state is State.FAILED:
            self._ended(errand.id, State.FAILED)

    @precondition(lambda self: self.fetches)
    @rule(number=picks, twice=st.booleans())
    def bring_piece(self, number: int, twice: bool) -> None:  # noqa: FBT001 - drawn
        """A worker brings some bytes, and perhaps says so again because it got no reply."""
        fetch = self.fetches[number % len(self.fetches)]
        told = self.jobs[fetch.job_id]
        before = told.size
        if self.ledger.run(add_piece(fetch, before, b"piece")):
            told.size += len(b"piece")
            if twice:
                assert self.ledger.run(add_piece(fetch, before, b"piece"))

    @precondition(lambda self: self.fetches)
    @rule(number=picks, how=st.sampled_from(["fetched", "failed", "later"]), host_works=st.booleans())
    def finish_fetch(self, number: int, how: str, host_works: bool) -> None:  # noqa: FBT001 - drawn
        """A worker is through with a fetch, in one way or another."""
        fetch = self.fetches.pop(number % len(self.fetches))
        told = self.jobs[fetch.job_id]
        # No image is of no bytes.
        how = "later" if how == "fetched" and told.size == 0 else how
        held = self._is_held(FETCHES, told.host, fetch.job_id, fetch.lease)
        error = UrlStatus("The host answered with status 404.") if how == "failed" else None
        again_ms = HOUR_MS if how == "later" else None
        returned = self.ledger.run(end_fetch(fetch, host_works=host_works, error=error, again_ms=again_ms))
        assert (returned.ticket is not None) == (held and how == "fetched")
        if held and how == "fetched":
            told.host = None
        elif held and how == "failed":
            self._ended(fetch.job_id, State.FAILED)

    @rule(number=picks, comes_twice=st.sampled_from([False, False, True]))
    def begin_delivery(self, number: int, comes_twice: bool) -> None:  # noqa: FBT001 - drawn
        """A worker begins to deliver, likewise."""
        errand = self.next_errand(WEBHOOKS, number, comes_twice=comes_twice)
        if errand is None:
            return
        attempt = self.ledger.run(start_delivery(errand, self.settings))
        if attempt is not None:
            assert attempt.job is not None
            assert attempt.event == f"job.{attempt.job.state}"
            self.attempts.append(attempt)

    @precondition(lambda self: self.attempts)
    @rule(number=picks, report=st.sampled_from(REPORTS))
    def finish_delivery(self, number: int, report: Report) -> None:
        """A worker tells what became of an attempt, perhaps when it is another's by now."""
        attempt = self.attempts.pop(number % len(self.attempts))
        before = self._delivery(attempt.delivery_id)
        held = self._is_held(WEBHOOKS, before.host, attempt.delivery_id, attempt.lease)
        counts = before.state is DeliveryState.PENDING and (held or report.state is DeliveryState.DELIVERED)
        assert self.ledger.run(record(attempt, report)) == (report.state if counts else before.state)

    @rule(number=picks)
    def deliver_again(self, number: int) -> None:
        """Somebody wants a delivery once more."""
        job_id = list(self.jobs)[number % len(self.jobs)]
        told = self.jobs[job_id]
        expected = "pending" if told.wants() else "unknown"
        assert self.ledger.run(redeliver([delivery_id(job_id, told.state)])) == [expected]

    @rule(work=st.sampled_from([FETCHES, WEBHOOKS]), host=st.sampled_from(HOSTS))
    def leases_lapse(self, work: Outgoing, host: str) -> None:
        """The workers that were at something for a host are gone."""
        self._make_past(work, f"busy:{host}", host)

    @rule(work=st.sampled_from([FETCHES, WEBHOOKS]), host=st.sampled_from(HOSTS))
    def pauses_end(self, work: Outgoing, host: str) -> None:
        """What was put off is due."""
        self._make_past(work, f"wait:{host}", host)

    # What always holds

    @invariant()
    def open_fetches_stand_in_one_line(self) -> None:
        """A job whose image is to be fetched waits in its host's line or is a worker's; no other job does."""
        expected = Counter((told.host, job_id) for job_id, told in self.jobs.items() if self._is_fetching(told))
        assert self._in_lines(FETCHES) == expected
        fetching: Any = self.probe.client.zrange(f"{self.probe.prefix}fetching:{MODEL}", 0, -1)
        assert {job_id.decode() for job_id in fetching} == {job_id for _, job_id in expected}

    @invariant()
    def every_end_owes_one_delivery(self) -> None:
        """There is one for each job that ended as it was to be told; those that are not over stand in one line."""
        owed = {delivery_id(job_id, told.state): told for job_id, told in self.jobs.items() if told.wants()}
        keys = {key for key in self.probe.all_keys() if key.startswith(("delivery:", "snapshot:"))}
        assert keys == {f"{kind}:{each}" for kind in ("delivery", "snapshot") for each in owed}
        deliveries = {each: self._delivery(each) for each in owed}
        pending = [each for each, delivery in deliveries.items() if delivery.state is DeliveryState.PENDING]
        assert self._in_lines(WEBHOOKS) == Counter((owed[each].hook_host, each) for each in pending)
        assert all((deliveries[each].due_ms is not None) == (each in pending) for each in owed)

    @invariant()
    def hosts_that_wait_are_looked_at(self) -> None:
        """No line is forgotten, and none that is empty is kept in mind."""
        for work in (FETCHES, WEBHOOKS):
            looked_at: Any = self.probe.client.zrange(self.probe.prefix + work.lines, 0, -1)
            assert {host.decode() for host in looked_at} == {host for host, _ in self._in_lines(work)}

    @invariant()
    def no_host_has_more_than_its_share(self) -> None:
        """A host has as many connections as it may, and one while it is not known to work."""
        for work in (FETCHES, WEBHOOKS):
            for host in HOSTS:
                assert self.probe.client.zcard(f"{self.probe.prefix}{work.lines}:busy:{host}") <= PER_HOST

    @invariant()
    def what_weighs_is_counted(self) -> None:
        """The bytes that have come so far count as those of any image, and go with the job."""
        open_jobs = [told for told in self.jobs.values() if not told.state.terminal]
        counts = self.probe.open_counts()
        assert (counts.get("jobs", 0), counts.get("bytes", 0)) == (len(open_jobs), sum(told.size for told in open_jobs))
        for job_id, told in self.jobs.items():
            image = self.probe.trace(job_id).image
            assert len(image or b"") == (0 if told.state.terminal else told.size)

    def _ended(self, job_id: str, state: State) -> None:
        told = self.jobs[job_id]
        if not told.state.terminal:
            told.state = state
        assert self.probe.get(job_id).state is told.state

    @staticmethod
    def _is_fetching(told: Told) -> bool:
        return told.host is not None and not told.state.terminal

    def _delivery(self, each: str) -> Delivery:
        fields: Any = self.probe.client.hgetall(f"{self.probe.prefix}delivery:{each}")
        return Delivery.from_hash(each, {name.decode(): value for name, value in fields.items()})

    def _is_held(self, work: Outgoing, host: str | None, each: str, lease: str) -> bool:
        score = self.probe.client.zscore(f"{self.probe.prefix}{work.lines}:busy:{host}", each)
        return score is not None and int(score) == int(lease)

    def _in_lines(self, work: Outgoing) -> Counter[tuple[str | None, str]]:
        found: Counter[tuple[str | None, str]] = Counter()
        for host in HOSTS:
            for kind in ("wait", "busy"):
                members: Any = self.probe.client.zrange(f"{self.probe.prefix}{work.lines}:{kind}:{host}", 0, -1)
                found.update((host, each.decode()) for each in members)
        return found

    def _make_past(self, work: Outgoing, line: str, host: str) -> None:
        lines = self.probe.prefix + work.lines
        members: Any = self.probe.client.zrange(f"{lines}:{line}", 0, -1)
        for key in (f"{lines}:{line}", f"{lines}:probes"):
            for each in members:
                self.probe.client.zadd(key, {each: 1}, xx=True)
        self.probe.client.zadd(lines, {host: 1}, xx=True)


def test_any_story_leaves_lines_and_outbox_consistent(redis_client: redis.Redis, settings: Settings) -> None:
    """Nothing is forgotten, nothing is sent by two, nothing is left over, and the bytes are right."""

    class Machine(OutgoingMachine):
        def __init__(self) -> None:
            super().__init__(redis_client, settings)

    run_state_machine_as_test(
        Machine,
        settings=hypothesis_settings(
            max_examples=60,
            stateful_step_count=40,
            deadline=None,
            derandomize=os.environ.get("CI") == "true",
            suppress_health_check=[HealthCheck.too_slow],
        ),
    )
