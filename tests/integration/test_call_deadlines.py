"""A server that takes a call and never answers it: when the call is given up, as the server sees it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.integration.rig import Rig, running_rig
from tests.integration.stub_triton import MODEL, Call, answer, image_of
from tests.integration.workers import wait_until
from tidegate.jobs import State

DEADLINE_SECONDS = 2.0


@pytest.fixture
def rig(tmp_path: Path, redis_program: Path, clean_environment: None) -> Iterator[Rig]:
    """Calls have two seconds."""
    with running_rig(tmp_path, infer_timeout_seconds=DEADLINE_SECONDS, triton_shm="off") as made:
        yield made


def test_call_ends_at_its_deadline_on_the_wire(rig: Rig) -> None:
    """Neither a tenth earlier nor later; then the job is tried again, and each attempt has a whole deadline."""
    left: list[float] = []

    def hang_twice(_call: Call, context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if len(rig.stub.calls) == 2:
            rig.stub.behaviour = answer
        wait_until(lambda: not context.is_active(), what="the end of the call")
        left.append(context.time_remaining())
        return scores

    rig.stub.behaviour = hang_twice
    with rig.worker():
        (job,) = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(2)]))
    assert (job.state, job.attempts) == (State.SUCCEEDED, 3)
    wait_until(lambda: len(left) == 2, what="both calls to be over")
    assert max(left) < DEADLINE_SECONDS / 10
    for call in rig.stub.calls:
        # What is left of it when the call arrives, which may take its time; on the wire it is rounded up.
        assert DEADLINE_SECONDS * 0.6 < call.deadline_seconds < DEADLINE_SECONDS * 1.1
