"""A server that takes a call and never answers it: when the call is given up, as the server sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, Call, answer, image_of
from tidegate.jobs import State

DEADLINE_SECONDS = 2.0


@pytest.fixture
def rig(tmp_path: Path, redis_program: Path, clean_environment: None) -> Iterator[Rig]:
    """Calls have two seconds."""
    with running_rig(tmp_path, infer_timeout_seconds=DEADLINE_SECONDS, triton_shm="off") as made:
        yield made


def test_call_ends_at_its_deadline_on_the_wire(rig: Rig) -> None:
    """Within a tenth, neither earlier nor later; then the job is tried again, and each attempt has a whole deadline."""
    held: list[float] = []

    def hang_twice(_call: Call, context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(held) == 1:
            rig.stub.behaviour = answer
        began = time.monotonic()
        while context.is_active() and time.monotonic() - began < 3 * DEADLINE_SECONDS:
            time.sleep(0.005)
        held.append(time.monotonic() - began)
        return scores

    rig.stub.behaviour = hang_twice
    with rig.worker():
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(2)]))
    assert (job.state, job.attempts) == (State.SUCCEEDED, 3)
    assert held == [pytest.approx(DEADLINE_SECONDS, rel=0.1)] * 2
