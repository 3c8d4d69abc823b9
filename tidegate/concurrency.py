"""How many batches a worker runs at a time, unless it is told. Light to import, since the command line shows it."""

from __future__ import annotations

import os


def default_concurrency() -> int:
    """A child for each core, to decode on, and one more, whose batch is at Triton meanwhile.

    Source: measured by ``benchmarks/questions/overlap.py``; see ``docs/performance.md``.
    """
    # What the process may use, where the system tells.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores + 1
