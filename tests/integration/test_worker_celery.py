"""Celery stays Celery: single jobs inside a batch are seen and steered by its own tools."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, hold, image_of
from tests.integration.workers import wait_until
from tidegate.jobs import State
from tidegate.tickets import DEFAULT_QUEUE


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig whose model takes 8 images a call."""
    with running_rig(tmp_path, max_batch=8) as rig:
        yield rig


@pytest.fixture
def go(rig: Rig) -> Iterator[threading.Event]:
    """Holds every call to Triton back until it is set."""
    event = threading.Event()
    rig.stub.behaviour = hold(event, 7)
    yield event
    event.set()


def names(answer: dict[str, Any] | None) -> set[str]:
    """The task ids that an inspection lists."""
    return {task["id"] for tasks in (answer or {}).values() for task in tasks}


def test_inspect_shows_each_job_of_a_running_batch(rig: Rig, go: threading.Event) -> None:
    """While a batch of 8 runs, 8 tasks are active and the others reserved; afterwards none is."""
    ids = rig.client.submit(MODEL, [image_of(index) for index in range(12)])
    with rig.worker(), rig.celery() as app:
        wait_until(lambda: rig.stub.calls, what="the first call")
        inspect = app.control.inspect()
        assert names(inspect.active()) == set(ids[:8])
        assert names(inspect.reserved()) == set(ids[8:])
        go.set()
        rig.client.wait_for_end(ids)
        wait_until(lambda: not names(inspect.active()) | names(inspect.reserved()), what="no task left")
        (total,) = [stats["total"] for stats in (inspect.stats() or {}).values()]
        assert total["tidegate.classify"] == 12


def test_revoked_jobs_never_reach_triton(rig: Rig, go: threading.Event) -> None:
    """A job that is revoked in the queue or in a worker's buffer ends canceled; its neighbours go on."""
    with rig.worker(concurrency=1), rig.celery() as app:
        first = rig.client.submit(MODEL, [image_of(0)])
        wait_until(lambda: rig.stub.calls, what="the first call")
        rest = rig.client.submit(MODEL, [image_of(1 + index % 15) for index in range(40)])
        inspect = app.control.inspect()
        wait_until(lambda: len(names(inspect.reserved())) == 16, what="a full prefetch window")
        buffered, queued = rest[3], rest[30]
        app.control.revoke([buffered, queued], reply=True)
        go.set()
        jobs = rig.client.wait_for_end([*first, *rest])
    states = {job.id: job.state for job in jobs}
    assert {job_id for job_id, state in states.items() if state is State.CANCELED} == {buffered, queued}
    assert list(states.values()).count(State.SUCCEEDED) == 39
    assert sum(rig.stub.sizes) == 39


def test_terminating_a_running_job_leaves_its_neighbours_alone(rig: Rig, go: threading.Event) -> None:
    """Revoke with terminate ends that job as canceled; the child lives and the rest of the batch succeeds."""
    with rig.worker() as worker, rig.celery() as app:
        (child,) = worker.children()
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(5)])
        wait_until(lambda: len(names(app.control.inspect().active())) == 5, what="5 active tasks")
        app.control.revoke(ids[2], terminate=True, signal="SIGKILL", reply=True)
        wait_until(lambda: rig.client.job(ids[2]).state is State.CANCELED, what="the cancellation")
        go.set()
        jobs = rig.client.wait_for_end(ids)
        assert [process.pid for process in worker.children()] == [child.pid]
    assert [job.state for job in jobs] == [State.SUCCEEDED] * 2 + [State.CANCELED] + [State.SUCCEEDED] * 2
    assert all(job.attempts == 1 for job in jobs)


def test_events_tell_each_job_s_story(rig: Rig) -> None:
    """Flower's events: every job is received, started, and ends as what it is, with its runtime and worker."""
    story: dict[str, list[dict[str, Any]]] = defaultdict(list)
    stop = threading.Event()
    with rig.worker() as worker, rig.celery() as app, app.connection_for_read() as connection:

        def note(event: dict[str, Any]) -> None:
            if event["type"].startswith("task-"):
                story[event["uuid"]].append(event)

        receiver = app.events.Receiver(connection, handlers={"*": note})

        def capture() -> None:
            while not stop.is_set():
                try:
                    receiver.capture(limit=None, timeout=0.2, wakeup=False)
                except TimeoutError:
                    continue

        thread = threading.Thread(target=capture)
        thread.start()
        try:
            wait_until(lambda: rig.client.redis.pubsub_numpat() > 0, what="a listener")
            ids = rig.client.submit(MODEL, [image_of(1), b"broken", image_of(2)])
            rig.client.wait_for_end(ids)
            wait_until(lambda: all(len(story[job_id]) == 3 for job_id in ids), what="three events a job")
        finally:
            stop.set()
            thread.join(10)
    kinds = [[event["type"] for event in story[job_id]] for job_id in ids]
    assert kinds[0] == kinds[2] == ["task-received", "task-started", "task-succeeded"]
    assert kinds[1] == ["task-received", "task-started", "task-failed"]
    assert "unsupported_format" in story[ids[1]][2]["exception"]
    assert story[ids[0]][2]["runtime"] > 0
    assert {event["hostname"] for events in story.values() for event in events} == {worker.node}


def test_other_tasks_pass_through(rig: Rig) -> None:
    """A task that is no classify job runs in a child as under Celery's own pool; an unknown one harms nothing."""
    with rig.worker(), rig.celery() as app:
        app.send_task("celery.backend_cleanup", queue=DEFAULT_QUEUE)
        app.send_task("no.such.task", queue=DEFAULT_QUEUE)
        inspect = app.control.inspect()

        def ran() -> bool:
            return any(s["total"].get("celery.backend_cleanup") == 1 for s in (inspect.stats() or {}).values())

        wait_until(ran, what="the other task")
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1)]))
    assert job.state is State.SUCCEEDED
