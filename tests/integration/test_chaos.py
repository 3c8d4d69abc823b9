"""A short round of the chaos that ``make chaos`` makes at length."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.run import run_chaos
from tests.chaos.stack import running_stack
from tests.chaos.verdict import count_ends

#: Of each tier one that is killed, and the one that takes a lease to mend.
KINDS = ("child killed", "worker killed", "redis killed", "triton killed", "api killed", "receiver killed")


@pytest.mark.timeout(180)
def test_a_round_of_chaos_keeps_every_promise(redis_program: Path) -> None:
    """Clients submit while each tier is killed in turn: nothing is lost, doubled, mixed up or stuck."""
    with running_stack() as stack:
        run = run_chaos(stack, seed=1, seconds=15, kinds=KINDS)
    verdict = run.verdict
    assert (verdict.lost, verdict.duplicate_ends, verdict.wrong_answers, verdict.stuck) == (0, 0, 0, 0), (
        verdict.line(),
        count_ends(run.promises),
    )
    assert (verdict.webhooks_lost, verdict.webhooks_wrong) == (0, 0), verdict.line()
    assert verdict.webhooks > 10
    assert verdict.ended == verdict.accepted > 50
    assert verdict.max_recovery_seconds < 15
    assert ("plain", "succeeded") in count_ends(run.promises)
