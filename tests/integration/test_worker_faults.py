"""Processes die, Triton misbehaves, Redis goes away: nothing accepted is lost, and nothing is answered twice."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, Call, answer, hold, image_of
from tests.integration.workers import wait_until
from tidegate.catalogue import read_catalogue
from tidegate.jobs import JobRecord, State


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig with short leases, whose model takes 8 images a call."""
    with running_rig(
        tmp_path, lease_seconds=3, infer_timeout_seconds=2, redis_timeout_seconds=1, sweep_seconds=1
    ) as rig:
        yield rig


def classes_of(jobs: list[JobRecord]) -> list[int]:
    """The winning class of each job."""
    return [job.result[0]["class_id"] if job.result else -1 for job in jobs]


def refuse(code: grpc.StatusCode, message: str) -> Any:
    """A behaviour that fails every call."""

    def behaviour(_call: Call, context: Any, _scores: NDArray[np.float32]) -> NDArray[np.float32]:
        context.abort(code, message)
        raise AssertionError("abort raises")

    return behaviour


def test_killed_child_costs_one_more_attempt(rig: Rig) -> None:
    """A child that is killed in the middle of a batch: every job runs again, alone, and succeeds."""
    with rig.worker() as worker:

        def kill_once(_call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
            rig.stub.behaviour = answer
            os.kill(worker.children()[0].pid, signal.SIGKILL)
            return scores

        rig.stub.behaviour = kill_once
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        jobs = rig.client.wait_for_end(ids)
        assert worker.running
    assert classes_of(jobs) == list(range(8))
    assert {job.attempts for job in jobs} == {2}
    assert rig.stub.sizes == [8] + [1] * 8


def test_killer_image_fails_alone(rig: Rig) -> None:
    """An image that kills its process each time fails with worker_lost at its third attempt; 15 neighbours succeed."""
    with rig.worker() as worker:

        def kill_for_seven(call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
            if 7 in call.classes:
                os.kill(worker.children()[0].pid, signal.SIGKILL)
            return scores

        rig.stub.behaviour = kill_for_seven
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(16)])
        jobs = rig.client.wait_for_end(ids)
        assert worker.running
    assert classes_of(jobs) == [0, 1, 2, 3, 4, 5, 6, -1, 8, 9, 10, 11, 12, 13, 14, 15]
    assert (jobs[7].error or {})["code"] == "worker_lost"
    assert jobs[7].attempts == 3
    assert sum(7 in call.classes for call in rig.stub.calls) == 3


def test_lost_machine_gives_its_jobs_back(rig: Rig) -> None:
    """A worker whose whole tree is killed: another one runs what it ran, within lease and sweep."""
    stuck = threading.Event()
    with ExitStack() as workers:
        first = workers.enter_context(rig.worker("w1"))
        rig.stub.behaviour = hold(stuck, 10)
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(30)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        first.kill_tree()
        rig.stub.behaviour = answer
        killed_at = time.monotonic()
        workers.enter_context(rig.worker("w2"))
        jobs = rig.client.wait_for_end(ids)
        stuck.set()
        assert time.monotonic() - killed_at < 3 + 1 + 10
    assert classes_of(jobs) == [index % 16 for index in range(30)]
    assert Counter(job.attempts for job in jobs) == {2: 8, 1: 22}


def test_sigterm_finishes_what_runs_and_gives_the_rest_back(rig: Rig) -> None:
    """A worker that is stopped ends its batch and begins no other; the next worker runs the rest, each job once."""
    go = threading.Event()
    rig.stub.behaviour = hold(go, 1.5)
    with rig.worker("w1") as first:
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(40)])
        wait_until(lambda: rig.stub.calls, what="a running batch")
        first.stop()
        assert rig.stub.sizes == [8]
        queued = rig.client.redis.llen("tidegate.stub\x06\x163")
        assert queued == 32, "the tickets that were not begun are back in their queue"
    go.set()
    with rig.worker("w2"):
        jobs = rig.client.wait_for_end(ids)
    assert classes_of(jobs) == [index % 16 for index in range(40)]
    assert {job.attempts for job in jobs} == {1}
    assert sum(rig.stub.sizes) == 40


def test_outage_of_triton_spends_no_attempt(rig: Rig) -> None:
    """While nothing answers at Triton's address jobs wait in Redis; once it is back they run, at first attempt."""
    with rig.worker(concurrency=2):
        rig.stub.stop()
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(40)])
        rig.client.wait_for_model(MODEL, ready=False)
        wait_until(lambda: rig.client.redis.zcard("tidegate:running:stub") == 0, what="nothing running")
        probes = rig.stub.probes
        rig.stub.start()
        back = time.monotonic()
        jobs = rig.client.wait_for_end(ids)
        assert time.monotonic() - back < 10
    assert classes_of(jobs) == [index % 16 for index in range(40)]
    assert {job.attempts for job in jobs} == {1}
    assert rig.stub.probes > probes


def test_probes_of_a_lost_triton_do_not_add_up(rig: Rig) -> None:
    """However many workers wait, Triton is asked at one worker's pace."""
    with ExitStack() as workers:
        for number in range(3):
            workers.enter_context(rig.worker(f"w{number}"))
        rig.stub.ready = False
        rig.client.wait_for_model(MODEL, ready=False)
        start, probes = time.monotonic(), rig.stub.probes
        wait_until(lambda: rig.stub.probes >= probes + 6, what="six more probes")
        # One each 0.3 s or so; three workers on their own would need a third of this.
        assert time.monotonic() - start > 6 * rig.settings.model_poll_seconds * 0.8


def test_unloaded_model_waits_for_its_return(rig: Rig) -> None:
    """A model that Triton unloads: its jobs wait without an attempt, and succeed once it is loaded again."""
    with rig.worker():
        rig.stub.ready = False
        rig.client.wait_for_model(MODEL, ready=False)
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        rig.stub.ready = True
        jobs = rig.client.wait_for_end(ids)
    assert classes_of(jobs) == list(range(8))
    assert {job.attempts for job in jobs} == {1}


def test_overloaded_triton_is_given_time(rig: Rig) -> None:
    """Triton says that its queue is full, three times: the job waits longer each time, and spends one attempt."""
    left = [3]

    def full_thrice(call: Call, context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if left[0]:
            left[0] -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "in ensemble, [request id: 1] Exceeds maximum queue size")
        return scores

    rig.stub.behaviour = full_thrice
    with rig.worker():
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(4)]))
        assert read_catalogue(rig.client.redis, rig.settings)[MODEL].ready
    assert (classes_of([job]), job.attempts, len(rig.stub.calls)) == ([4], 1, 4)


def test_overload_until_the_deadline_fails_the_job(rig: Rig) -> None:
    """A queue that stays full for good: the job fails with model_overloaded when its deadline comes."""
    rig.stub.behaviour = refuse(grpc.StatusCode.RESOURCE_EXHAUSTED, "too much")
    with rig.worker():
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(4)], expires_in_ms=3000))
    assert (job.state, (job.error or {})["code"]) in {
        (State.FAILED, "model_overloaded"),
        (State.EXPIRED, "model_overloaded"),
    }


def test_failing_model_is_tried_three_times(rig: Rig) -> None:
    """INTERNAL each time: every job of the batch fails with model_failed after three attempts."""
    rig.stub.behaviour = refuse(grpc.StatusCode.INTERNAL, "CUDA error")
    with rig.worker():
        jobs = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index) for index in range(8)]))
    assert {(job.state, (job.error or {})["code"], job.attempts) for job in jobs} == {(State.FAILED, "model_failed", 3)}


def test_model_that_fails_once_costs_one_attempt(rig: Rig) -> None:
    """INTERNAL once: all 8 succeed at their second attempt."""

    def once(_call: Call, context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        rig.stub.behaviour = answer
        context.abort(grpc.StatusCode.INTERNAL, "CUDA error")
        return scores

    rig.stub.behaviour = once
    with rig.worker():
        jobs = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index) for index in range(8)]))
    assert classes_of(jobs) == list(range(8))
    assert {job.attempts for job in jobs} == {2}


def test_refused_batch_is_halved_to_the_culprit(rig: Rig) -> None:
    """Triton refuses any batch with one input: that job fails at its one attempt, and the others succeed."""

    def refuse_five(call: Call, context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if 5 in call.classes:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad input")
        return scores

    rig.stub.behaviour = refuse_five
    with rig.worker():
        jobs = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index) for index in range(8)]))
    assert classes_of(jobs) == [0, 1, 2, 3, 4, -1, 6, 7]
    assert ((jobs[5].error or {})["code"], jobs[5].attempts) == ("model_rejected_input", 1)
    assert sorted(rig.stub.sizes) == [1, 1, 2, 2, 4, 4, 8]


def test_hanging_triton_is_left_at_the_deadline(rig: Rig) -> None:
    """A call that is never answered ends at its deadline, which Triton is told; the job is tried again."""
    stuck = threading.Event()

    def hang_once(_call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        rig.stub.behaviour = answer
        stuck.wait(20)
        return scores

    rig.stub.behaviour = hang_once
    with rig.worker():
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(2)]))
    stuck.set()
    assert (classes_of([job]), job.attempts) == ([2], 2)
    assert rig.stub.calls[0].deadline_seconds == pytest.approx(2, abs=0.2)


def _steady(rig: Rig, ids: list[str], stop: threading.Event) -> None:
    """Submit a few jobs at a time for as long as Redis takes them, and remember those that were accepted."""
    count = 0
    while not stop.wait(0.05):
        try:
            ids += rig.client.submit(MODEL, [image_of(count % 16)])
        except Exception:  # whatever it is, the job was not accepted; the jobs that were, count
            continue
        count += 1


@pytest.mark.parametrize("fault", ["restart_thrice", "kill", "pause", "read_only"])
def test_redis_trouble_loses_nothing(rig: Rig, fault: str) -> None:
    """Redis is restarted, killed, frozen or made a replica under load: the worker goes on by itself, all jobs end."""
    ids: list[str] = []
    stop = threading.Event()
    with rig.worker() as worker:
        submitting = threading.Thread(target=_steady, args=(rig, ids, stop))
        submitting.start()
        try:
            wait_until(lambda: len(ids) > 20, what="some load")
            _trouble(rig, fault)
            accepted = len(ids)
            wait_until(lambda: len(ids) > accepted + 20, what="some load after it")
        finally:
            stop.set()
            submitting.join(10)
        jobs = rig.client.wait_for_end(ids, seconds=30)
        assert worker.running
    assert {job.state for job in jobs} == {State.SUCCEEDED}


def test_worker_with_its_hands_full_survives_restarts_of_redis(rig: Rig) -> None:
    """Batches linger, tickets were fetched and not begun, and the connection goes, again and again: all run."""
    rig.settings = rig.settings.model_copy(update={"batch_linger_ms": 1500})
    ids: list[str] = []
    with rig.worker() as worker:
        for round_number in range(4):
            ids += rig.client.submit(MODEL, [image_of(1), image_of(2)])
            time.sleep(0.3 * round_number)  # the fault comes before, in and after the linger
            rig.redis.stop()
            rig.redis.start()
            ids += rig.client.submit(MODEL, [image_of(3), image_of(4)])
            jobs = rig.client.wait_for_end(ids, seconds=15)
        assert worker.running
    assert classes_of(jobs) == [1, 2, 3, 4] * 4


def _trouble(rig: Rig, fault: str) -> None:
    if fault == "restart_thrice":
        for _ in range(3):
            rig.redis.stop()
            rig.redis.start()
    elif fault == "kill":
        # What fsync has not seen yet may go; a second is its promise, and the jobs here are not younger.
        rig.client.redis.execute_command("BGREWRITEAOF")
        wait_until(lambda: rig.client.redis.info("persistence")["aof_rewrite_in_progress"] == 0)
        rig.redis.kill()
        rig.redis.start()
    elif fault == "pause":
        rig.redis.pause()
        time.sleep(5)  # the fault itself: longer than any time-out, and than a lease
        rig.redis.resume()
    else:
        rig.client.redis.replicaof("127.0.0.1", 1)
        time.sleep(5)  # the fault itself
        rig.client.redis.replicaof("NO", "ONE")


def test_pickle_in_the_queue_is_refused(rig: Rig, tmp_path: Path) -> None:
    """A message of pickled code is not run and harms nobody: the next job succeeds."""
    import base64
    import json
    import pickle

    marker = tmp_path / "pwned"

    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.mkdir, (str(marker),)

    with rig.worker() as worker:
        message = {
            "body": base64.b64encode(pickle.dumps(((Bomb(),), {}, {}))).decode(),
            "content-encoding": "binary",
            "content-type": "application/x-python-serialize",
            "headers": {"lang": "py", "task": "tidegate.classify", "id": "x"},
            "properties": {
                "correlation_id": "x",
                "delivery_mode": 2,
                "delivery_info": {"exchange": "", "routing_key": "tidegate"},
                "priority": 0,
                "body_encoding": "base64",
                "delivery_tag": "x",
            },
        }
        rig.client.redis.lpush("tidegate", json.dumps(message))
        wait_until(lambda: "ContentDisallowed" in worker.log.read_text(), what="the refusal in the log")
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1)]))
        assert worker.running
    assert job.state is State.SUCCEEDED
    assert not marker.exists()
