"""The same promises on kombu's own transport: what is ours makes tickets cheap, and nothing more."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, answer, hold, image_of
from tests.integration.workers import wait_until
from tidegate.commands import Ticket
from tidegate.jobs import JobRecord, Priority, State


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig whose workers fetch tickets one by one, with a second copy of each."""
    with running_rig(tmp_path, broker_transport="stock", redis_timeout_seconds=1) as rig:
        yield rig


def classes_of(jobs: list[JobRecord]) -> list[int]:
    """The winning class of each job."""
    return [job.result[0]["class_id"] if job.result else -1 for job in jobs]


def test_stock_transport_batches_and_answers(rig: Rig) -> None:
    """Every job has its own answer after one attempt, and batches form behind a busy child."""
    with rig.worker():
        jobs = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index % 16) for index in range(100)]))
    assert classes_of(jobs) == [index % 16 for index in range(100)]
    assert {job.attempts for job in jobs} == {1}
    assert sum(rig.stub.sizes) == 100
    assert max(rig.stub.sizes) > 1


def test_stock_transport_runs_doubled_and_lost_tickets_once(rig: Rig) -> None:
    """The ledger decides, whatever the broker delivers."""
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)], tickets=False)
    rig.client.office.issue([Ticket(job_id, MODEL, Priority.NORMAL, 1) for job_id in ids[:4]] * 3)
    with rig.worker(concurrency=2):
        jobs = rig.client.wait_for_end(ids)
    assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}
    assert sum(rig.stub.sizes) == 8


def test_stock_transport_survives_a_killed_child(rig: Rig) -> None:
    """The jobs of its batch run again."""
    stuck = threading.Event()
    rig.stub.behaviour = hold(stuck, 6)
    with rig.worker() as worker:
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        rig.stub.behaviour = answer
        os.kill(worker.children()[0].pid, signal.SIGKILL)
        jobs = rig.client.wait_for_end(ids)
        stuck.set()
    assert classes_of(jobs) == list(range(8))


def test_stock_transport_survives_a_restart_of_redis(rig: Rig) -> None:
    """With tickets fetched and not begun, the worker consumes again by itself, and every job ends."""
    stuck = threading.Event()
    rig.stub.behaviour = hold(stuck, 1)
    with rig.worker() as worker:
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(40)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        rig.redis.stop()
        rig.redis.start()
        stuck.set()
        jobs = rig.client.wait_for_end(ids, seconds=30)
        assert worker.running
    assert classes_of(jobs) == [index % 16 for index in range(40)]


def test_stock_transport_gives_back_what_was_not_begun(rig: Rig) -> None:
    """A worker that is stopped leaves its tickets to the next one."""
    go = threading.Event()
    rig.stub.behaviour = hold(go, 1)
    with rig.worker("w1") as first:
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(40)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        first.stop()
    go.set()
    with rig.worker("w2"):
        jobs = rig.client.wait_for_end(ids, seconds=20)
    assert classes_of(jobs) == [index % 16 for index in range(40)]
    assert {job.attempts for job in jobs} == {1}
