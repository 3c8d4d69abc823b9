"""Several models and versions at one worker: none disturbs another."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, Call, image_of, slow
from tests.integration.workers import wait_until
from tidegate.catalogue import read_catalogue
from tidegate.jobs import Priority, State

BURST = 400
#: More jobs, one after the other, than any window of these tests has room for.
MANY = 5000


def classes_of(rig: Rig, ids: list[str]) -> list[int]:
    """The best class of each job, all of which must succeed."""
    jobs = rig.client.wait_for_end(ids)
    assert [(job.state, job.error) for job in jobs] == [(State.SUCCEEDED, None)] * len(ids)
    return [job.result[0]["class_id"] for job in jobs if job.result]


@pytest.mark.parametrize(
    ("priority", "transport"), [(Priority.NORMAL, "bulk"), (Priority.HIGH, "bulk"), (Priority.NORMAL, "stock")]
)
def test_burst_on_one_model_does_not_starve_another(
    redis_program: Path, tmp_path: Path, priority: Priority, transport: str
) -> None:
    """Behind hundreds of jobs of one model, a job of another waits for a call or two of theirs, not for the burst."""
    models = {"models": ("busy", "quiet")}
    with running_rig(tmp_path, stub=models, broker_transport=transport) as rig:
        rig.stub.behaviour = slow(0.1)
        with rig.worker(model="quiet"):
            burst = rig.client.submit("busy", [image_of(1)] * BURST, priority=priority)
            wait_until(lambda: len(rig.stub.calls) >= 3, what="the burst to run")
            waits = [_calls_before_answer(rig, class_id) for class_id in range(2, 8)]
            unfinished = sum(not rig.client.job(job_id).state.terminal for job_id in burst)
            assert classes_of(rig, burst) == [1] * BURST
    assert unfinished > 0, "the burst ended before the question was put"
    assert max(waits) <= (2 if transport == "bulk" else 4)


def _calls_before_answer(rig: Rig, class_id: int) -> int:
    """How many calls of the busy model begin between the submission of a quiet job and its own call."""
    with rig.stub.standing_still():
        before = len(rig.stub.calls)
        ids = rig.client.submit("quiet", [image_of(class_id)])
    assert classes_of(rig, ids) == [class_id]
    calls = itertools.takewhile(lambda call: call.model == "busy", rig.stub.calls[before:])
    return sum(1 for _ in calls)


def test_worker_holds_no_more_of_a_model_than_its_own_batches(redis_program: Path, tmp_path: Path) -> None:
    """With many models waiting, each has at most two batches of tickets at a worker, so that others find work too."""
    names = tuple(f"m{index}" for index in range(4))
    with running_rig(tmp_path, max_batch=4, stub={"models": names}) as rig:
        rig.stub.behaviour = slow(0.2)
        with rig.worker(model=names[0]):
            ids = [job_id for name in names for job_id in rig.client.submit(name, [image_of(3)] * 60)]
            wait_until(lambda: len(rig.stub.calls) >= 8, what="all models to run")
            with rig.celery() as app:
                reserved = next(iter((app.control.inspect().reserved() or {}).values()))
            held = [sum(request["args"] == [name] for request in reserved) for name in names]
            rig.client.redis.delete(*rig.client.redis.keys("tidegate.m*"))
            rig.client.ledger.run(rig.client.ledger.commands.cancel(ids))
    assert max(held) <= 2 * 4
    assert min(held) > 0


def test_version_that_is_missing_fails_within_its_window_and_stops_nobody(redis_program: Path, tmp_path: Path) -> None:
    """A job that names an absent version waits, fails as model_not_available, and the others never notice."""

    def only_version_one(call: Call, context: Any, scores: Any) -> Any:
        if call.version not in ("", "1"):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: 'stub' version {call.version}")
        return scores

    with running_rig(tmp_path, version_wait_seconds=2) as rig, rig.worker() as worker:
        rig.stub.behaviour = only_version_one
        (absent,) = rig.client.submit(MODEL, [image_of(4)], version="7")
        (named,) = rig.client.submit(MODEL, [image_of(5)], version="1")
        others = 0
        while not rig.client.job(absent).state.terminal:
            assert classes_of(rig, rig.client.submit(MODEL, [image_of(6)])) == [6]
            assert read_catalogue(rig.client.redis, rig.settings)[MODEL].ready
            others += 1
            assert others < MANY, "it never fails"
        job = rig.client.job(absent)
        assert classes_of(rig, [named]) == [5]
        assert "model.outage" not in worker.log.read_text(), "the model was taken for gone"
    assert others > 1, "one was answered while the first still waited"
    assert sum(6 in call.classes for call in rig.stub.calls) == others, "each ran once"
    assert (job.state, (job.error or {}).get("code")) == (State.FAILED, "model_not_available")
    assert (job.finished_ms or 0) - job.created_ms >= 2000


def test_version_that_comes_within_the_window_answers(redis_program: Path, tmp_path: Path) -> None:
    """A version that is still being loaded is waited for, without an attempt being spent."""
    loaded_at = time.monotonic() + 3

    def loading(call: Call, context: Any, scores: Any) -> Any:
        if call.version == "2" and time.monotonic() < loaded_at:
            context.abort(grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'stub' version 2 is not found")
        return scores

    with running_rig(tmp_path) as rig, rig.worker():
        rig.stub.behaviour = loading
        ids = rig.client.submit(MODEL, [image_of(4)], version="2")
        assert classes_of(rig, ids) == [4]
        assert rig.client.job(ids[0]).attempts == 1
