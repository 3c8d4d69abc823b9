"""Tells as JSON what refusing every bad file of the corpus costs a worker that has decoded before, beside good ones.

A process of its own, since the most memory that a process ever had can only be asked for as a whole.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
import time

import numpy as np

from tests.images.corpus import FOLDERS, read
from tests.images.honest import HONEST
from tidegate.errors import RequestError
from worker.contract import Preprocessing, Squash
from worker.images import ImageLimits, prepare

PLAN = Preprocessing(height=32, width=32, layout="NHWC", framing=Squash())


def main() -> None:
    """Warm up on the good files, then measure the bad ones."""
    for name in HONEST:
        processor_seconds_of("honest", name)
    dearest_good = max(processor_seconds_of("honest", name) for name in HONEST)
    before = peak_mb()
    bad = [(folder, name) for folder in ("foreign", "oversized", "broken") for name in FOLDERS[folder]]
    dearest = max(processor_seconds_of(folder, name) for folder, name in bad)
    costs = {"files": len(bad), "times_a_good_one": dearest / dearest_good, "grown_mb": round(peak_mb() - before)}
    sys.stdout.write(json.dumps(costs))


def processor_seconds_of(folder: str, name: str) -> float:
    """How much processor time one file takes to be prepared or refused."""
    data = read(folder, name)
    started = time.process_time()
    with contextlib.suppress(RequestError):
        prepare(data, plan=PLAN, limits=ImageLimits(), out=np.empty((32, 32, 3), dtype=np.uint8))
    return time.process_time() - started


def peak_mb() -> float:
    """The most memory this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
