"""A client that floods does not push others out: a real worker, a stub Triton, a burst of one, a trickle of another."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, image_of, slow
from tests.integration.workers import wait_until
from tidegate.jobs import Priority, State

#: A call to the stub, which takes 8 images.
CALL_SECONDS = 0.05
BATCH = 8
BURST = 800
TRICKLE = 12


@pytest.fixture
def rig(tmp_path: Path, redis_program: Path, clean_environment: None) -> Iterator[Rig]:
    """A model that takes its time."""
    with running_rig(tmp_path, max_batch=BATCH) as made:
        made.stub.behaviour = slow(CALL_SECONDS)
        yield made


def waits_of_a_trickle(rig: Rig, *, tenant: str) -> list[int]:
    """Submit jobs one after the other, each when the last one has ended; gives how many calls each had before it."""
    waits = []
    for _ in range(TRICKLE):
        with rig.stub.standing_still():
            before = len(rig.stub.calls)
            job_ids = rig.client.submit(MODEL, [image_of(1)], tenant=tenant)
        (job,) = rig.client.wait_for_end(job_ids)
        assert job.state is State.SUCCEEDED
        others = itertools.takewhile(lambda call: 1 not in call.classes, rig.stub.calls[before:])
        waits.append(sum(1 for _ in others))
    return waits


def still_waiting(rig: Rig, tenant: str) -> int:
    """How many jobs of the tenant are open."""
    return int(rig.client.redis.hget(f"{rig.settings.key_prefix}tenant:{tenant}", "jobs") or 0)


@pytest.mark.parametrize("priority", [Priority.NORMAL, Priority.HIGH])
def test_a_trickle_is_served_beside_a_burst(rig: Rig, priority: Priority) -> None:
    """It waits for what the worker holds and one turn, not for the burst before it, also when that is marked urgent.

    Behind the whole burst the first of the trickle would wait for a hundred calls. A worker holds two batches beside
    the one that runs, and another call may begin as the count does.
    """
    with rig.worker():
        rig.client.submit(MODEL, [image_of(2)] * BURST, tenant="flood", priority=priority)
        waits = waits_of_a_trickle(rig, tenant="trickle")
        assert still_waiting(rig, "flood") > BURST / 10
    assert max(waits) <= 4, waits


def test_two_floods_get_the_same(rig: Rig) -> None:
    """The one that came later has had about as much as the other by the time at which it is through with half."""
    with rig.worker():
        with rig.stub.standing_still():
            rig.client.submit(MODEL, [image_of(2)] * BURST, tenant="first")
            rig.client.submit(MODEL, [image_of(3)] * BURST, tenant="second")
            before = still_waiting(rig, "first")
        wait_until(lambda: still_waiting(rig, "second") < BURST - 160, seconds=60)
        first, second = before - still_waiting(rig, "first"), BURST - still_waiting(rig, "second")
    assert 0.6 < first / second < 1.6
