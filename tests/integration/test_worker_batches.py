"""Batches form, and a job's fate never depends on its neighbours'."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, Call, hold, image_of
from tests.integration.workers import wait_until
from tidegate.commands import Ticket
from tidegate.jobs import Priority, State


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig whose model takes 32 images a call."""
    with running_rig(tmp_path, max_batch=32) as rig:
        yield rig


def test_backlog_runs_in_full_batches(rig: Rig) -> None:
    """64 jobs that wait when the worker starts go to Triton in two calls of 32, and each gets its own answer."""
    ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(64)])
    with rig.worker():
        jobs = rig.client.wait_for_end(ids)
    assert rig.stub.sizes == [32, 32]
    assert [job.result[0]["class_id"] for job in jobs if job.result] == [index % 16 for index in range(64)]
    assert {job.run["batch_size"] for job in jobs} == {32}
    assert len({job.run["batch_id"] for job in jobs}) == 2


def test_answer_names_version_labels_and_scores(rig: Rig) -> None:
    """A result tells class, label, logit and probability, and the record tells version, attempts and times."""
    with rig.worker():
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(5)], top_k=2, metadata={"a": "b"}))
    assert job.result is not None
    assert [prediction["class_id"] for prediction in job.result] == [5, 0]
    assert job.result[0]["class_name"] == "label5"
    assert job.result[0]["logit"] == 8.0
    assert job.result[0]["probability"] == pytest.approx(0.99499, abs=1e-4)
    assert (job.run["model_version"], job.attempts, job.options["metadata"]) == ("1", 1, {"a": "b"})
    assert job.created_ms <= (job.started_ms or 0) <= (job.finished_ms or 0)


def test_batch_grows_while_the_child_is_busy(rig: Rig) -> None:
    """A lone job leaves at once; what comes while it runs leaves together as soon as the child is free."""
    go = threading.Event()
    rig.stub.behaviour = hold(go, 10)
    with rig.worker():
        first = rig.client.submit(MODEL, [image_of(0)])
        wait_until(lambda: rig.stub.sizes == [1], what="the lone job's call")
        rest = rig.client.submit(MODEL, [image_of(1)] * 20)
        with rig.celery() as app:
            wait_until(lambda: len(next(iter((app.control.inspect().reserved() or {"": []}).values()))) == 20)
        go.set()
        rig.client.wait_for_end([*first, *rest])
    assert rig.stub.sizes == [1, 20]


def test_broken_image_fails_alone(rig: Rig) -> None:
    """A broken image in a batch ends with its own code; its neighbours have their answers from one call."""
    good = [image_of(index) for index in range(6)]
    broken = [b"", b"\x89PNG\r\n\x1a\n", b"not an image", image_of(3)[:-30]]
    ids = rig.client.submit(MODEL, [*good[:3], *broken, *good[3:]])
    with rig.worker():
        jobs = rig.client.wait_for_end(ids)
    assert [job.state for job in jobs] == [State.SUCCEEDED] * 3 + [State.FAILED] * 4 + [State.SUCCEEDED] * 3
    codes = [job.error["code"] for job in jobs if job.error]
    assert set(codes) <= {"image_corrupt", "unsupported_format"}
    assert all(job.attempts == 1 for job in jobs)
    assert rig.stub.sizes == [6]


def test_canceled_job_never_reaches_triton(rig: Rig) -> None:
    """A job that is cancelled while it waits is skipped; the others run in one call without it."""
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(4)])
    assert rig.client.ledger.run(rig.client.ledger.commands.cancel([ids[1]])) == ["canceled"]
    with rig.worker():
        jobs = rig.client.wait_for_end(ids)
        assert [job.state for job in jobs].count(State.SUCCEEDED) == 3
    assert rig.client.job(ids[1]).state is State.CANCELED
    assert [call.classes for call in rig.stub.calls] == [(0, 2, 3)]


def test_expired_job_never_reaches_triton(rig: Rig) -> None:
    """A deadline that passes before a worker comes ends the job as expired, with no call."""
    ids = rig.client.submit(MODEL, [image_of(1)], expires_in_ms=50)
    deadline_ms = rig.client.job(ids[0]).deadline_ms or 0
    wait_until(lambda: rig.client.redis.time()[0] * 1000 > deadline_ms + 1000, what="the deadline")
    with rig.worker():
        (job,) = rig.client.wait_for_end(ids)
    assert (job.state, job.attempts) == (State.EXPIRED, 0)
    assert rig.stub.calls == []


def test_doubled_tickets_run_once(rig: Rig) -> None:
    """Five tickets for each job make one call and one attempt."""
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
    for _ in range(4):
        rig.client.office.issue([Ticket(job_id, MODEL, Priority.NORMAL, 1) for job_id in ids])
    with rig.worker(concurrency=2):
        jobs = rig.client.wait_for_end(ids)
        wait_until(lambda: rig.client.redis.keys("tidegate.stub*") == [], what="all tickets used")
    assert all((job.state, job.attempts) == (State.SUCCEEDED, 1) for job in jobs)
    assert sum(rig.stub.sizes) == 8


def test_lost_tickets_are_issued_again(rig: Rig) -> None:
    """Jobs whose tickets never reached the broker run all the same."""
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)], tickets=False)
    with rig.worker():
        jobs = rig.client.wait_for_end(ids)
    assert all(job.state is State.SUCCEEDED for job in jobs)


def test_high_goes_before_low(rig: Rig) -> None:
    """What is more urgent leaves the queue first, whenever it came."""
    low = rig.client.submit(MODEL, [image_of(0)] * 96, priority=Priority.LOW)
    high = rig.client.submit(MODEL, [image_of(9)] * 32, priority=Priority.HIGH)
    with rig.worker():
        rig.client.wait_for_end([*low, *high])
    assert rig.stub.calls[0].classes == (9,) * 32


def test_wrong_number_of_rows_fails_loudly(rig: Rig) -> None:
    """An answer with a row too few is nobody's: every job of the batch fails, and none gets another's row."""
    rig.stub.behaviour = lambda _call, _context, scores: scores[:-1]
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(4)])
    with rig.worker():
        jobs = rig.client.wait_for_end(ids)
    assert [(job.state, (job.error or {})["code"]) for job in jobs] == [(State.FAILED, "model_output_invalid")] * 4


def test_row_of_nan_fails_alone(rig: Rig) -> None:
    """A row of NaN or infinity fails its own job; the rows beside it count."""

    def spoil(_call: Call, _context: object, scores: object) -> object:
        scores[1, 0], scores[2, 3] = float("nan"), float("inf")  # type: ignore[index]
        return scores

    rig.stub.behaviour = spoil  # type: ignore[assignment]
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(4)])
    with rig.worker():
        jobs = rig.client.wait_for_end(ids)
    assert [job.state for job in jobs] == [State.SUCCEEDED, State.FAILED, State.FAILED, State.SUCCEEDED]
    assert {(job.error or {})["code"] for job in jobs[1:3]} == {"model_output_invalid"}
