"""Priorities under load: what is urgent passes a backlog, and what is not is served all the same; a real worker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, image_of, slow
from tests.integration.workers import wait_until
from tidegate.jobs import Priority
from worker.turns import ROUND

BATCH = 4
#: What the worker may have taken before anything else comes: the batch that runs, and two more.
HELD = 3 * BATCH
URGENT, PATIENT = 9, 2


@pytest.fixture
def rig(tmp_path: Path, redis_program: Path, clean_environment: None) -> Iterator[Rig]:
    """A model that takes a while over each batch."""
    with running_rig(tmp_path, max_batch=BATCH) as made:
        made.stub.behaviour = slow(0.01)
        yield made


def images_before(rig: Rig, class_id: int) -> int:
    """How many images were run before the last one of this class."""
    classes = [each for call in rig.stub.calls for each in call.classes]
    return len(classes) - 1 - classes[::-1].index(class_id)


def test_constant_stream_of_urgent_jobs_does_not_starve_the_others(rig: Rig) -> None:
    """Jobs of low priority run within a round or two after those that came before them, while urgent ones wait."""
    backlog, most = 40, 800
    with rig.worker():
        urgent = rig.client.submit(MODEL, [image_of(URGENT)] * backlog, priority=Priority.HIGH)
        low = rig.client.submit(MODEL, [image_of(PATIENT)] * BATCH, priority=Priority.LOW)

        def low_has_run() -> bool:
            ran = sum(call.size for call in rig.stub.calls)
            missing = min(ran + backlog, most) - len(urgent)
            if missing > 0:
                urgent.extend(rig.client.submit(MODEL, [image_of(URGENT)] * missing, priority=Priority.HIGH))
            return all(rig.client.job(job_id).state.terminal for job_id in low)

        wait_until(low_has_run, what="jobs of low priority to run")
        passed = images_before(rig, PATIENT)
        rig.client.wait_for_end(urgent)
    assert passed <= backlog + HELD + 2 * ROUND * BATCH < most


def test_urgent_jobs_pass_a_backlog(rig: Rig) -> None:
    """Eight urgent jobs are through before a tenth of the four hundred that came before them."""
    with rig.worker():
        low = rig.client.submit(MODEL, [image_of(PATIENT)] * 400, priority=Priority.LOW)
        wait_until(lambda: rig.stub.calls)
        with rig.stub.standing_still():
            ran = sum(call.size for call in rig.stub.calls)
            urgent = rig.client.submit(MODEL, [image_of(URGENT)] * 8, priority=Priority.HIGH)
        rig.client.wait_for_end([*urgent, *low])
    assert images_before(rig, URGENT) - ran < 40
