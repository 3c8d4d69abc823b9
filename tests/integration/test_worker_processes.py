"""The processes of a worker: killed, replaced, added and taken away under load, without a job being lost."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.odd_app import BUG, GREEDY, KILLER
from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, answer, hold, image_of
from tests.integration.workers import Worker, wait_until
from tidegate.jobs import JobRecord, State

ODD = "tests.integration.odd_app"
#: Longer than any test waits: what would happen then has happened by other means, or the test fails.
NEVER_SECONDS = 300.0


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig on which no lease, no sweep and no look at the models mends what should have been seen at once."""
    with running_rig(
        tmp_path,
        lease_seconds=NEVER_SECONDS,
        sweep_seconds=NEVER_SECONDS,
        infer_timeout_seconds=NEVER_SECONDS,
        model_poll_seconds=NEVER_SECONDS,
    ) as rig:
        yield rig


def classes_of(jobs: list[JobRecord]) -> list[int]:
    """The winning class of each job."""
    return [job.result[0]["class_id"] if job.result else -1 for job in jobs]


def pids_of(worker: Worker) -> set[int]:
    """Those of its children."""
    return {child.pid for child in worker.children()}


def test_batch_of_a_dead_child_runs_again_within_two_seconds(rig: Rig) -> None:
    """Its death is seen by its parent, and not only when the lease lapses."""
    with rig.worker() as worker:
        stuck = threading.Event()
        rig.stub.behaviour = hold(stuck, 9)
        ids = rig.client.submit(MODEL, [image_of(3)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        rig.stub.behaviour = answer
        os.kill(worker.children()[0].pid, signal.SIGKILL)
        (job,) = rig.client.wait_for_end(ids, seconds=2)
        stuck.set()
    assert (classes_of([job]), job.attempts) == ([3], 2)


def test_batch_that_a_child_got_before_redis_went_is_still_looked_after(rig: Rig) -> None:
    """The child was handed a batch and had not said so when the broker was lost: its death is seen all the same."""
    with rig.worker() as worker:
        (child,) = worker.children()
        rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1)]))
        with rig.celery() as app:
            wait_until(lambda: list((app.control.inspect().active() or {}).values()) == [[]], what="an idle child")
            child.suspend()
            ids = rig.client.submit(MODEL, [image_of(3)])
            wait_until(lambda: names(app.control.inspect().reserved()) == set(ids), what="the ticket fetched")
        rig.redis.stop()
        rig.redis.start()
        wait_until(lambda: worker.log.read_text().count("Connected to") == 2, what="the reconnection")
        stuck = threading.Event()
        rig.stub.behaviour = hold(stuck, 9)
        child.resume()
        wait_until(lambda: len(rig.stub.calls) == 2, what="the batch running")
        rig.stub.behaviour = answer
        child.kill()
        (job,) = rig.client.wait_for_end(ids)
        stuck.set()
    assert (classes_of([job]), job.attempts) == ([3], 2)


def names(answer: dict[str, Any] | None) -> set[str]:
    """The task ids that an inspection lists."""
    return {task["id"] for tasks in (answer or {}).values() for task in tasks}


def test_killer_images_among_others_fail_alone(rig: Rig) -> None:
    """Each kills its process three times; all others succeed, none more than once delayed by it."""
    images = [image_of(index % 16) + (KILLER if index % 20 == 7 else b"") for index in range(60)]
    with rig.worker(app=ODD, concurrency=2) as worker:
        jobs = rig.client.wait_for_end(rig.client.submit(MODEL, images))
        assert worker.running
    killers = [job for index, job in enumerate(jobs) if index % 20 == 7]
    assert {((job.error or {})["code"], job.attempts) for job in killers} == {("worker_lost", 3)}
    others = [job for index, job in enumerate(jobs) if index % 20 != 7]
    assert classes_of(others) == [index % 16 for index in range(60) if index % 20 != 7]
    assert max(job.attempts for job in others) <= 2


def test_bug_of_ours_is_told_as_one(rig: Rig) -> None:
    """An exception that nobody foresaw ends its job as ``internal_error`` after its attempts, and no other job."""
    with rig.worker(app=ODD) as worker:
        (child,) = worker.children()
        ids = rig.client.submit(MODEL, [image_of(1), image_of(2) + BUG, image_of(3)])
        jobs = rig.client.wait_for_end(ids)
        assert pids_of(worker) == {child.pid}, "no process died of it"
        assert "RuntimeError: a bug" in worker.log.read_text(), "the traceback is in the log"
    assert classes_of(jobs) == [1, -1, 3]
    assert ((jobs[1].error or {})["code"], jobs[1].attempts) == ("internal_error", 3)


def test_worker_whose_children_keep_dying_ends(rig: Rig) -> None:
    """A pool that is given up does not leave a worker behind that looks alive and runs nothing."""
    with rig.worker(app=ODD, concurrency=3, environ={"ODD_LEAST_DEATHS": "1"}) as worker:
        for child in worker.children():
            child.kill()
        assert worker.wait(20) not in (None, 0)


def test_children_are_replaced_by_count_under_load(rig: Rig) -> None:
    """Every few batches a child ends and another takes its place; one is killed besides; each job runs."""
    rig = with_settings(rig, child_max_calls=5)
    with rig.worker(concurrency=4) as worker:
        seen = pids_of(worker)
        ids: list[str] = []
        for round_number in range(20):
            ids += rig.client.submit(MODEL, [image_of(index % 16) for index in range(20)])
            wait_until(lambda: rig.client.redis.zcard("tidegate:queued:stub:normal") == 0, what="a batch or two")
            if round_number == 10:
                # Unless it is being replaced just now.
                with suppress(psutil.NoSuchProcess):
                    worker.children()[0].kill()
            seen |= pids_of(worker)
        jobs = rig.client.wait_for_end(ids)
    assert classes_of(jobs) == [index % 16 for index in range(20)] * 20
    assert len(seen) > 4 + 4
    assert Counter(job.attempts for job in jobs)[1] >= len(jobs) - 8, "no job but those of the killed child ran twice"


def test_child_that_has_grown_is_replaced(rig: Rig) -> None:
    """By memory, after the batch in which it grew; the batch counts."""
    rig = with_settings(rig, child_max_memory_bytes=400 * 1024**2)
    with rig.worker(app=ODD) as worker:
        (before,) = pids_of(worker)
        jobs = []
        for _ in range(12):
            jobs += rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1) + GREEDY]))
        wait_until(lambda: pids_of(worker) and before not in pids_of(worker), what="another child")
        jobs += rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1)]))
    assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}


def with_settings(rig: Rig, **changes: Any) -> Rig:
    """The same rig, whose workers have other settings."""
    rig.settings = rig.settings.model_copy(update=changes)
    return rig


def test_pool_grows_and_shrinks_under_load(rig: Rig) -> None:
    """``pool_grow`` and ``pool_shrink`` of Celery: new children get batches at once, and leaving ones lose none."""
    go = threading.Event()
    rig.stub.behaviour = hold(go, 60)
    with rig.worker() as worker, rig.celery() as app:
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(64)])
        wait_until(lambda: len(rig.stub.calls) == 1, what="one batch")
        app.control.pool_grow(2, reply=True)
        wait_until(lambda: len(rig.stub.calls) >= 3, what="three batches at a time")
        go.set()
        rig.client.wait_for_end(ids)
        rig.stub.behaviour = answer
        app.control.pool_shrink(2, reply=True)
        wait_until(lambda: len(pids_of(worker)) == 1, what="one child")
        jobs = rig.client.wait_for_end([*ids, *rig.client.submit(MODEL, [image_of(5)] * 16)])
    assert classes_of(jobs) == [*(index % 16 for index in range(64)), *[5] * 16]
    assert {job.attempts for job in jobs} == {1}


def test_workers_share_a_backlog(rig: Rig) -> None:
    """No worker hoards: of two each runs about half, and one that comes late takes part within a batch's time."""
    rig.stub.behaviour = hold(threading.Event(), 0.2)
    with rig.worker("w1") as first:
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(400)])
        wait_until(lambda: len(rig.stub.calls) >= 2, what="a start")
        with rig.worker("w2"), rig.celery() as app:
            jobs = rig.client.wait_for_end(ids)
            stats = app.control.inspect().stats() or {}
        assert first.running
    totals = sorted(node["total"]["tidegate.classify"] for node in stats.values())
    assert classes_of(jobs) == [index % 16 for index in range(400)]
    assert sum(totals) == 400
    assert totals[0] >= 24, f"the late one ran too little: {totals}"
