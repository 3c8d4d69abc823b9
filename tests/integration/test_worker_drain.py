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

#: Longer than any test lasts: what takes so long was not waited for.
LONG_SECONDS = 100.0
#: By when a worker that must end has ended: a limit against hangs.
ENDED_SECONDS = 20.0
DRAIN_SECONDS = 2.0
#: So many waits for Redis would take much longer.
MANY = 64


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig whose workers have long to end; no sweep mends within a test what they should have done themselves."""
    with running_rig(
        tmp_path,
        drain_seconds=LONG_SECONDS,
        lease_seconds=LONG_SECONDS,
        infer_timeout_seconds=LONG_SECONDS,
        sweep_seconds=LONG_SECONDS,
    ) as rig:
        yield rig


def in_a_hurry(rig: Rig) -> Rig:
    """The same rig, whose workers have little time to end."""
    rig.settings = rig.settings.model_copy(update={"drain_seconds": DRAIN_SECONDS})
    return rig


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
    assert worker.wait(ENDED_SECONDS) is not None, "it did not end"
    return time.monotonic() - asked


def test_batch_beyond_the_grace_goes_back_unspent(rig: Rig, stuck: threading.Event) -> None:
    """What runs when the grace is over runs at the next worker at once, as if it had not been begun."""
    rig = in_a_hurry(rig)
    with ExitStack() as workers:
        first = workers.enter_context(rig.worker("w1"))
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(20)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        assert tell(first, signal.SIGTERM) >= DRAIN_SECONDS
        assert rig.client.redis.zcard("tidegate:running:stub") == 0, "nothing waits for its lease to lapse"
        rig.stub.behaviour = answer
        workers.enter_context(rig.worker("w2"))
        jobs = rig.client.wait_for_end(ids)
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
        tell(worker, *signals)
        states = [(rig.client.job(job_id).state, rig.client.job(job_id).attempts) for job_id in ids]
        assert states == [(State.QUEUED, 0)] * 8
        assert rig.client.redis.llen("tidegate.stub\x06\x163") == 8, "each has a ticket"


def test_tickets_that_wait_go_back_before_the_batch_has_ended(rig: Rig, stuck: threading.Event) -> None:
    """While a worker finishes its batch, others already run all that it had fetched and not begun."""
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
        rig.client.wait_for_end(rest)
        assert first.running, "it has not ended yet"


def test_batch_that_ends_in_the_grace_is_kept(rig: Rig, stuck: threading.Event) -> None:
    """Its answers count, and the worker ends as soon as they are written."""
    with rig.worker() as worker:
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        threading.Timer(2, stuck.set).start()
        tell(worker, signal.SIGTERM)
        jobs = [rig.client.job(job_id) for job_id in ids]
    assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}


def test_worker_ends_though_redis_is_frozen(redis_program: Path, tmp_path: Path) -> None:
    """It holds nobody back for long, however many tickets are held."""
    go = threading.Event()
    with running_rig(tmp_path, max_batch=MANY, drain_seconds=DRAIN_SECONDS, redis_timeout_seconds=0.5) as rig:
        rig.stub.behaviour = hold(go, LONG_SECONDS)
        with rig.worker() as worker:
            rig.client.submit(MODEL, [image_of(1)] * 3 * MANY)
            wait_until(lambda: rig.client.redis.llen("tidegate.stub\x06\x163") == 0, what="all tickets fetched")
            rig.redis.pause()
            try:
                tell(worker, signal.SIGTERM)
            finally:
                rig.redis.resume()
                go.set()
