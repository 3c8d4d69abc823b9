"""How a question is run from the command line, alone or by ``python -m benchmarks`` among the others."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

from rich.console import Console

from benchmarks.report import series_table
from benchmarks.results import Result


@dataclass(frozen=True)
class Scale:
    """How much of everything is measured.

    Attributes:
        share: of the jobs and seconds of the full measurement; 1 but for trying a script out.
        rounds: how often each contestant runs, in turns with the others.
    """

    share: float = 1.0
    rounds: int = 3

    def count(self, full: int, *, least: int = 1) -> int:
        """That share of a number of jobs, images or requests."""
        return max(least, round(full * self.share))

    def at_most(self, *, rounds: int) -> Scale:
        """The same with fewer rounds, for what takes long and varies little."""
        return replace(self, rounds=min(rounds, self.rounds))

    def seconds(self, full: float, *, least: float = 0.5) -> float:
        """That share of a time."""
        return max(least, full * self.share)


FULL = Scale()
QUICK = Scale(share=0.1, rounds=1)

Measure = Callable[[Scale], Result]


def run_script(measure: Measure) -> None:
    """Run one question: full size is written to the results folder, a trial is only printed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, once; nothing is written")
    quick = parser.parse_args().quick
    result = measure(QUICK if quick else FULL)
    if not quick:
        result.write()
    Console().print(series_table(result))
