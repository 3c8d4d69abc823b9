"""A worker that is told to stop: it finishes what it can, gives back what it cannot, and loses nothing."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, answer, hold, image_of
from tests.integration.workers import Worker, wait_until
from tidegate.jobs import State

#: How long a call to the stub takes here at most; no test waits for it.
LONG_SECONDS = 9.0


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig whose workers have 2 s to end; no sweep mends within a test what they should have done themselves."""
    with running_rig(tmp_path, drain_seconds=2, lease_seconds=10, infer_timeout_seconds=10, sweep_seconds=10) as rig:
        yield rig


@pytest.fixture
def patient_rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """The same, with 8 s to end: as long as it takes another worker to show what it got."""
    with running_rig(tmp_path, drain_seconds=8, lease_seconds=10, infer_timeout_seconds=10, sweep_seconds=10) as rig:
        yield rig


@pytest.fixture
def stuck(rig: Rig) -> Iterator[threading.Event]:
    """Holds every call to Triton back until it is set."""
    event = threading.Event()
    rig.stub.behaviour = hold(event, LONG_SECONDS)
    yield event
    event.set()


def tell(worker: Worker, *signals: signal.Signals) -> float:
    """Send signals, one after the other; gives the seconds that the worker took to end after the last."""
    for number in signals:
        time.sleep(0.3)  # a handler is not entered twice for two signals at once
        worker.send(number)
    asked = time.monotonic()
    assert worker.wait(20) is not None, "it did not end"
    return time.monotonic() - asked


def test_batch_beyond_the_grace_goes_back_unspent(rig: Rig, stuck: threading.Event) -> None:
    """What runs when the grace is over runs at the next worker at once, as if it had not been begun."""
    with ExitStack() as workers:
        first = workers.enter_context(rig.worker("w1"))
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(20)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        took = tell(first, signal.SIGTERM)
        assert 2 <= took < 2 + 4
        assert rig.client.redis.zcard("tidegate:running:stub") == 0, "nothing waits for its lease to lapse"
        rig.stub.behaviour = answer
        workers.enter_context(rig.worker("w2"))
        jobs = rig.client.wait_for_end(ids, seconds=8)
    assert [job.result[0]["class_id"] for job in jobs if job.result] == [index % 16 for index in range(20)]
    assert {job.attempts for job in jobs} == {1}


@pytest.mark.parametrize(
    "signals",
    [(signal.SIGTERM, signal.SIGTERM), (signal.SIGTERM, signal.SIGQUIT), (signal.SIGQUIT,)],
    ids=lambda signals: "+".join(number.name for number in signals),
)
def test_worker_that_must_end_at_once_gives_its_batch_back(
    rig: Rig, stuck: threading.Event, signals: tuple[signal.Signals, ...]
) -> None:
    """A second signal, or a first that is not to be argued with, ends the waiting."""
    with rig.worker("w1") as worker:
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        assert tell(worker, *signals) < 4
        states = [(rig.client.job(job_id).state, rig.client.job(job_id).attempts) for job_id in ids]
        assert states == [(State.QUEUED, 0)] * 8
        assert rig.client.redis.llen("tidegate.stub\x06\x163") == 8, "each has a ticket"


def test_tickets_that_wait_go_back_before_the_batch_has_ended(rig: Rig, stuck: threading.Event) -> None:
    """While a worker finishes its batch, others already run all that it had fetched and not begun."""
    rig.settings = rig.settings.model_copy(update={"drain_seconds": 8})
    with ExitStack() as workers:
        first = workers.enter_context(rig.worker("w1"))
        rig.client.submit(MODEL, [image_of(1)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        rest = rig.client.submit(MODEL, [image_of(2)] * 12)
        wait_until(lambda: rig.client.redis.llen("tidegate.stub\x06\x163") == 0, what="all tickets fetched")
        second = workers.enter_context(rig.worker("w2"))
        wait_until(lambda: "Started consuming" in second.log.read_text(), what="the other consuming")
        rig.stub.behaviour = answer
        first.send(signal.SIGTERM)
        rig.client.wait_for_end(rest, seconds=5)
        assert first.running, "it has not ended yet"


def test_batch_that_ends_in_the_grace_is_kept(rig: Rig, stuck: threading.Event) -> None:
    """Its answers count, and the worker ends as soon as they are written."""
    with rig.worker() as worker:
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        threading.Timer(0.5, stuck.set).start()
        assert tell(worker, signal.SIGTERM) < 2 + 2
    jobs = rig.client.wait_for_end(ids, seconds=1)
    assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}


def test_worker_ends_though_redis_is_frozen(rig: Rig, stuck: threading.Event) -> None:
    """It holds nobody back for long, however many tickets are held; the jobs come back when their leases lapse."""
    with rig.worker() as worker:
        rig.client.submit(MODEL, [image_of(1)] * 30)
        wait_until(lambda: rig.stub.calls, what="a running batch")
        rig.redis.pause()
        try:
            assert tell(worker, signal.SIGTERM) < 15
        finally:
            rig.redis.resume()
