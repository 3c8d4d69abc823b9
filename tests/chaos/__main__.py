"""``python -m tests.chaos``: a run with a report; ends with 1 unless every promise was kept."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from benchmarks.machine import commit, machine, versions
from tests.chaos.run import Run, run_chaos
from tests.chaos.stack import running_stack
from tests.chaos.verdict import count_ends, untrue

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "reliability" / "chaos.json"


def main() -> int:
    """Run, tell, and write the results down."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=3.0)
    arguments = parser.parse_args()
    before = machine()
    with running_stack(seed=arguments.seed) as stack:
        run = run_chaos(
            stack,
            seed=arguments.seed,
            seconds=arguments.minutes * 60,
            say=lambda line: print(f"{time.strftime('%H:%M:%S')} {line}", flush=True),
        )
    report(run)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(
        json.dumps({"machine": before, "commit": commit(), "versions": versions()} | document(run), indent=2)
    )
    return 0 if run.verdict.good else 1


def report(run: Run) -> None:
    """One line a kind of fault, how jobs ended, and the verdict."""
    print()
    for kind, seconds in sorted(run.recoveries.items()):
        print(f"{kind}: {len(seconds)} times, answering again after {max(seconds):.1f} s at most")
    for (kind, end), count in sorted(count_ends(run.promises).items()):
        print(f"{kind} jobs that came to {end}: {count}")
    print(f"submissions that had to be repeated: {run.refusals}")
    for heard in untrue(run.promises, run.heard):
        print(f"a webhook that must not be: {heard}")
    print(run.verdict.line())


def document(run: Run) -> dict[str, object]:
    """The run as it is kept."""
    return {
        "seed": run.seed,
        "faults": {
            kind: {
                "count": len(seconds),
                "max_recovery_s": round(max(seconds), 2),
                "recoveries_s": [round(s, 2) for s in seconds],
            }
            for kind, seconds in sorted(run.recoveries.items())
        },
        "ends": {f"{kind} {end}": count for (kind, end), count in sorted(count_ends(run.promises).items())},
        "verdict": run.verdict.line(),
    }


if __name__ == "__main__":
    sys.exit(main())
