"""A client that floods does not push others out: a real worker, a stub Triton, a burst of one, a trickle of another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, image_of, slow
from tests.integration.workers import wait_until
from tidegate.jobs import Priority, State

#: A call to the stub, which takes 8 images: so its worker answers 80 a second.
CALL_SECONDS = 0.1
BATCH = 8
BURST = 800
TRICKLE = 12


@pytest.fixture
def rig(tmp_path: Path, redis_program: Path, clean_environment: None) -> Iterator[Rig]:
    """A model that takes its time."""
    with running_rig(tmp_path, max_batch=BATCH) as made:
        made.stub.behaviour = slow(CALL_SECONDS)
        yield made


def waits_of_a_trickle(rig: Rig, *, tenant: str) -> list[float]:
    """Submit jobs one after the other, each when the last one has ended; gives how long each took, in seconds."""
    waits = []
    for _ in range(TRICKLE):
        began = time.monotonic()
        (job_id,) = rig.client.submit(MODEL, [image_of(1)], tenant=tenant)
        wait_until(partial(_has_ended, rig, job_id), seconds=30)
        waits.append(time.monotonic() - began)
    return waits


def _has_ended(rig: Rig, job_id: str) -> bool:
    record = rig.client.ledger.get(job_id)
    return record is not None and record.state is State.SUCCEEDED


def still_waiting(rig: Rig, tenant: str) -> int:
    """How many jobs of the tenant are open."""
    return int(rig.client.redis.hget(f"{rig.settings.key_prefix}tenant:{tenant}", "jobs") or 0)


@pytest.mark.parametrize("priority", [Priority.NORMAL, Priority.HIGH])
def test_a_trickle_is_served_beside_a_burst(rig: Rig, priority: Priority) -> None:
    """It waits for what the worker holds and one turn, not for the burst before it, also when that is marked urgent.

    Behind the whole burst the first of the trickle would wait ten seconds. A worker holds two batches beside the one
    that runs, so a turn is four calls at most.
    """
    with rig.worker():
        rig.client.submit(MODEL, [image_of(2)] * BURST, tenant="flood", priority=priority)
        waits = waits_of_a_trickle(rig, tenant="trickle")
        assert still_waiting(rig, "flood") > BURST / 10
    assert statistics.median(waits) < 6 * CALL_SECONDS
    assert max(waits) < 15 * CALL_SECONDS


def test_two_floods_get_the_same(rig: Rig) -> None:
    """The one that came later has had about as much as the other by the time at which it is through with half."""
    with rig.worker():
        rig.client.submit(MODEL, [image_of(2)] * BURST, tenant="first")
        rig.client.submit(MODEL, [image_of(3)] * BURST, tenant="second")
        before = still_waiting(rig, "first")
        wait_until(lambda: still_waiting(rig, "second") < BURST - 160, seconds=60)
        first, second = before - still_waiting(rig, "first"), BURST - still_waiting(rig, "second")
    assert 0.6 < first / second < 1.6
