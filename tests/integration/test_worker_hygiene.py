"""What a worker does not do: trust a clock, a message or a Redis too far, or leave anything behind."""

from __future__ import annotations

import base64
import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.redis_server import running_redis
from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, hold, image_of
from tests.integration.workers import quick_settings, running_worker, wait_until
from tidegate.commands import Return, Ticket
from tidegate.jobs import Priority, State
from tidegate.tickets import ticket_lists


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig with a model of 8 images a call."""
    with running_rig(tmp_path) as rig:
        yield rig


def test_ticket_that_expired_by_a_worker_s_clock_cancels_nothing(rig: Rig) -> None:
    """A worker whose clock is ahead takes a job's ticket for expired: the job, whose time has not come, still runs."""
    (job_id,) = rig.client.submit(MODEL, [image_of(3)], tickets=False, expires_in_ms=60_000)
    rig.client.office.issue([Ticket(job_id, MODEL, Priority.NORMAL, issued_ms=1, deadline_ms=1)])
    with rig.worker() as worker:
        (job,) = rig.client.wait_for_end([job_id])
        assert "state=early" in worker.log.read_text(), "the expired ticket was met"
    assert (job.state, job.attempts) == (State.SUCCEEDED, 1)


def test_deadline_ends_a_job_while_it_is_put_off(rig: Rig) -> None:
    """A job that rests between two tries ends when its time is over, and not when its rest is."""
    (job_id,) = rig.client.submit(MODEL, [image_of(3)], tickets=False, expires_in_ms=1500)
    commands = rig.client.ledger.commands
    rig.client.ledger.run(commands.claim("batch", [job_id]))
    rig.client.ledger.run(commands.release("batch", [Return(job_id, delay_ms=600_000)]))
    with rig.worker():
        (job,) = rig.client.wait_for_end([job_id])
    assert job.state is State.EXPIRED
    assert (job.finished_ms or 0) >= (job.deadline_ms or 0)
    assert rig.stub.calls == []


def test_answer_past_the_deadline_is_none(rig: Rig) -> None:
    """A job whose answer comes too late ends as expired, without a result; its neighbour in the batch has its own."""
    rig.stub.behaviour = hold(threading.Event(), 3)
    with rig.worker():
        hasty = rig.client.submit(MODEL, [image_of(3)], expires_in_ms=1500, tickets=False)
        patient = rig.client.submit(MODEL, [image_of(4)], tickets=False)
        now_ms = rig.client.redis.time()[0] * 1000
        rig.client.office.issue([Ticket(job_id, MODEL, Priority.NORMAL, now_ms) for job_id in (*hasty, *patient)])
        late, good = rig.client.wait_for_end([*hasty, *patient])
    assert (late.state, late.result) == (State.EXPIRED, None)
    assert good.state is State.SUCCEEDED


def refused_messages(tmp_path: Path) -> list[bytes]:
    """Messages that are no tickets: a pickle that would make a folder, an unreadable body, plain nonsense."""

    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            import os

            return os.mkdir, (str(tmp_path / "pwned"),)

    properties = {
        "correlation_id": "x",
        "delivery_info": {"exchange": "", "routing_key": "tidegate"},
        "priority": 0,
        "body_encoding": "base64",
        "delivery_tag": "x",
    }
    headers = {"lang": "py", "task": "tidegate.classify", "id": "x"}
    pickled = {
        "body": base64.b64encode(pickle.dumps(((Bomb(),), {}, {}))).decode(),
        "content-encoding": "binary",
        "content-type": "application/x-python-serialize",
        "headers": headers,
        "properties": properties,
    }
    headless = {**pickled, "content-type": "application/json", "headers": {}, "body": base64.b64encode(b"{}").decode()}
    return [json.dumps(pickled).encode(), json.dumps(headless).encode()]


def test_messages_that_are_no_tickets_are_refused_and_counted(rig: Rig, tmp_path: Path) -> None:
    """None of them is run, each is counted, and the next job succeeds."""
    with rig.worker() as worker:
        messages = refused_messages(tmp_path)
        rig.client.redis.lpush("tidegate", *messages, b"no json at all")
        wait_until(lambda: rig.client.redis.get("tidegate:refused") == b"2", what="two refusals counted")
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1)]))
        assert worker.running
    assert job.state is State.SUCCEEDED
    assert not (tmp_path / "pwned").exists()
    assert 0 < rig.client.redis.ttl("tidegate:refused") <= rig.settings.result_ttl_seconds


def test_jobs_leave_no_keys_and_no_channels_of_celery_s(rig: Rig) -> None:
    """Hundreds of jobs later there is no result, no subscription and no copy of a message of Celery's own."""
    with rig.worker(concurrency=2):
        idle = len(rig.client.redis.client_list())
        for _ in range(5):
            rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index % 16) for index in range(100)]))
            channels: Any = rig.client.redis.pubsub_channels("celery-task-meta-*")
            assert channels == []
        assert abs(len(rig.client.redis.client_list()) - idle) <= 5
        keys: Any = rig.client.redis.keys("*")
        foreign = {key.decode() for key in keys if not key.startswith((b"tidegate:", b"_kombu."))}
    assert foreign <= set(ticket_lists(MODEL))


def test_worker_warns_of_a_redis_that_endangers_jobs(redis_program: Path, tmp_path: Path) -> None:
    """It names the setting and the command that mends it, once, and serves all the same."""
    options = {"appendonly": "no", "maxmemory_policy": "allkeys-lru"}
    with running_redis(tmp_path, **options) as redis:
        settings = quick_settings(redis.url, "127.0.0.1:1")
        with running_worker(settings, tmp_path) as worker:
            redis.stop()
            redis.start()
            wait_until(lambda: worker.log.read_text().count("Connected to") == 2, what="a reconnection")
            text = worker.log.read_text()
    assert text.count("redis.evicts") == text.count("redis.forgets") == 1
    assert "CONFIG SET maxmemory-policy noeviction" in text
    assert "CONFIG SET appendonly yes" in text
