"""How much waits, for how long, and how fast it drains, on a real Redis."""

from __future__ import annotations

import pytest

from tests.integration.ledger_probe import HOUR_MS, MODEL, LedgerProbe, success
from tidegate.backlog import Backlog, backlog
from tidegate.commands import Return
from tidegate.jobs import Priority

OWNER = "batch-1"


def look(probe: LedgerProbe, *models: str) -> list[Backlog]:
    """The backlogs of these models."""
    return probe.ledger.run(backlog(models))


def test_backlog_counts_what_waits_and_what_runs(probe: LedgerProbe) -> None:
    """Jobs of every priority and those that were put off wait; a model's jobs are counted for it alone."""
    for priority in Priority:
        probe.accept(2, priority=priority)
    probe.accept(3, model="another")
    running, put_off = (ticket.job_id for ticket in probe.accept(2))
    probe.claim(OWNER, running, put_off)
    probe.ledger.run(probe.commands.release(OWNER, [Return(put_off, delay_ms=HOUR_MS)]))

    mine, another, nobodys = look(probe, MODEL, "another", "nowhere")

    assert (mine.model, mine.waiting, mine.running) == (MODEL, 7, 1)
    assert (another.waiting, another.running) == (3, 0)
    assert (nobodys.waiting, nobodys.running, nobodys.oldest_seconds, nobodys.rate) == (0, 0, None, 0.0)


def test_backlog_tells_how_long_the_oldest_has_waited(probe: LedgerProbe) -> None:
    """By the time of its submission, in whichever queue it stands."""
    # One alone: of two that came in the same millisecond either may be in front.
    (low,) = probe.accept(priority=Priority.LOW)
    probe.accept(priority=Priority.HIGH)
    created: int = int(probe.client.hget(f"{probe.prefix}job:{low.job_id}", "created_ms") or 0)
    probe.client.hset(f"{probe.prefix}job:{low.job_id}", "created_ms", created - 90_000)

    (mine,) = look(probe, MODEL)

    assert mine.oldest_seconds == pytest.approx(90, abs=10)


def test_backlog_tells_the_rate_of_late(probe: LedgerProbe) -> None:
    """What ended lately counts, and from it follows when the rest will have."""
    done = [ticket.job_id for ticket in probe.accept(20)]
    probe.accept(10)
    probe.claim(OWNER, *done)
    probe.ledger.run(probe.commands.complete(OWNER, [success(job_id) for job_id in done]))

    (mine,) = look(probe, MODEL)

    assert mine.rate == pytest.approx(2.0, abs=0.2)
    assert mine.drained_in_seconds is not None
    assert mine.drained_in_seconds > 0


@pytest.mark.parametrize(
    ("waiting", "rate", "pace", "expected"),
    [(0, 0.0, None, 0.0), (10, 0.0, None, None), (10, 2.0, None, 5.0), (10, 2.0, 5.0, 2.0)],
)
def test_estimate_follows_from_the_pace_or_else_the_rate(
    waiting: int, rate: float, pace: float | None, expected: float | None
) -> None:
    """Where nothing ends nothing is promised."""
    known = Backlog(MODEL, waiting=waiting, running=0, oldest_seconds=None, rate=rate, pace=pace)
    assert known.drained_in_seconds == expected
