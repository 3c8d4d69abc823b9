"""``python -m tests.chaos.sweep_cost``: how much of Redis's time a sweep takes when many jobs wait; Redis counts."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import commit, machine, versions
from tests.integration.ledger_probe import MODEL, LedgerProbe
from tests.integration.redis_server import running_redis
from tidegate.commands import SWEEP_LIMIT
from tidegate.jobs import LANES, Priority
from tidegate.ledger import Ledger
from tidegate.settings import load_settings
from tidegate.store import connect
from tidegate.tickets import TicketOffice, all_ticket_lists

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "reliability" / "sweep_cost.json"
JOBS = 100_000
SWEEPS = 50
#: What a sweep may take of Redis's time, in milliseconds.
TARGET_MS = 20.0
#: A ticket may be out for so long; short, so that the oldest ticket must vouch for every job.
TICKET_SECONDS = 0.01


def main() -> int:
    """Fill a queue, sweep it with nothing due and with as much due as one sweep takes on, and write the times down."""
    before = machine()
    with tempfile.TemporaryDirectory(prefix="tidegate-sweep-") as folder, running_redis(Path(folder)) as server:
        settings = load_settings({}, redis_url=server.url, sweep_seconds=TICKET_SECONDS, max_queued_jobs=2 * JOBS)
        with connect(settings) as client:
            probe = LedgerProbe(Ledger(client, settings))
            _fill(probe)
            cases = {
                "nothing_due": _cost(probe, all_ticket_lists(MODEL), lambda: 0),
                "tickets_lost": _cost(probe, ["none"] * LANES * len(Priority), lambda: SWEEP_LIMIT),
                "deadlines_passed": _cost(probe, all_ticket_lists(MODEL), partial(_overdue, probe)),
            }
    for name, cost in cases.items():
        print(f"{name}: p50 {cost['p50_ms']:.2f} ms, most {cost['max_ms']:.2f} ms of Redis's time")
    facts = {"machine": before, "commit": commit(), "versions": versions()}
    told = {"jobs": JOBS, "sweeps": SWEEPS, "most_due": SWEEP_LIMIT, "target_ms": TARGET_MS, "cases": cases}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(facts | told, indent=2))
    return 0 if all(cost["p50_ms"] < TARGET_MS for cost in cases.values()) else 1


def _fill(probe: LedgerProbe) -> None:
    """Jobs in every lane, each with its ticket."""
    office = TicketOffice(probe.client)
    for number in range(JOBS // 1_000):
        office.issue(probe.accept(1_000, image=b"x", tenant=f"tenant-{number % LANES}"))


def _overdue(probe: LedgerProbe) -> int:
    """More jobs, whose deadline passes at once."""
    probe.accept(SWEEP_LIMIT, image=b"x", expires_in_ms=1)
    time.sleep(0.002)
    return SWEEP_LIMIT


def _cost(probe: LedgerProbe, lists: Sequence[str], prepare: Callable[[], int]) -> dict[str, float]:
    """Sweep again and again, each time after preparing so many jobs to be seen to."""
    prepare()
    probe.sweep(*lists)
    spent = []
    for _ in range(SWEEPS):
        due = prepare()
        probe.client.config_resetstat()
        swept = probe.sweep(*lists)
        commands: Any = probe.client.info("commandstats")
        assert swept.expired + swept.reticketed == due, swept
        spent.append(float(commands["cmdstat_evalsha"]["usec"]) / 1000)
    return {"p50_ms": round(median(spent), 3), "max_ms": round(max(spent), 3)}


if __name__ == "__main__":
    sys.exit(main())
