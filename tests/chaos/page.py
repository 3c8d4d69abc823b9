"""``python -m tests.chaos.page`` puts what the last run measured into docs/reliability.md, so that nobody types it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reliability.md"
RESULTS = ROOT / "benchmarks" / "results" / "reliability"
_MARKED = re.compile(r"(<!-- chaos -->\n).*?(<!-- /chaos -->)", re.DOTALL)


def measured(results: Path = RESULTS) -> str:
    """A table of the chaos run, a line of the soak, and one of the sweeps; a note where one of them was not run."""
    parts = (
        _chaos(_read(results / "chaos.json")),
        _soak(_read(results / "soak.json"), "jobs"),
        _soak(_read(results / "soak_mixed.json"), "jobs with images of all sizes, some of 40 megapixels,"),
        _sweeps(_read(results / "sweep_cost.json")),
    )
    return "\n".join(parts) + "\n"


def rewritten(page: str) -> str:
    """The page with the present results."""
    return _MARKED.sub(lambda found: found[1] + measured() + found[2], page)


def _read(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    document: dict[str, Any] = json.loads(file.read_text())
    return document


def _chaos(run: dict[str, Any] | None) -> str:
    if run is None:
        return "The chaos run was not made for this version.\n"
    rows = [f"| {kind} | {fault['count']} | {fault['max_recovery_s']:.1f} s |" for kind, fault in run["faults"].items()]
    return "\n".join(
        [
            f"{_where(run)}, seed {run['seed']}:",
            "",
            "| fault | times | a job submitted afterwards was answered, or a webhook taken, within |",
            "|---|--:|--:|",
            *rows,
            "",
            f"`{run['verdict']}`",
            "",
        ]
    )


def _soak(run: dict[str, Any] | None, what: str) -> str:
    if run is None:
        return f"The soak of {what} was not made for this version.\n"
    growth = ", ".join(f"{part} {(value - 1) * 100:+.1f} %" for part, value in run["growth"].items())
    left = f"keys left in the ledger beside the catalogue: {len(run['keys_left'])}"
    return f"{run['jobs']:,} {what} through one worker, children replaced all along: memory {growth}; {left}.\n"


def _sweeps(run: dict[str, Any] | None) -> str:
    if run is None:
        return "The cost of a sweep was not measured for this version.\n"
    idle, tickets, deadlines = (
        f"{cost['p50_ms']:.1f} ms (at most {cost['max_ms']:.1f})"
        for cost in (run["cases"][name] for name in ("nothing_due", "tickets_lost", "deadlines_passed"))
    )
    return (
        f"A sweep over {run['jobs']:,} queued jobs takes {idle} of Redis's time when nothing is due, by Redis's own "
        f"count, median of {run['sweeps']}; and with as much due as one takes on, {tickets} for {run['most_due']:,} "
        f"lost tickets and {deadlines} for as many deadlines. The target is {run['target_ms']:.0f} ms.\n"
    )


def _where(run: dict[str, Any]) -> str:
    machine = run["machine"]
    return f"{machine['processor']}, {machine['cores']} cores, commit `{run['commit']}`"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text()))
