"""``python -m tests.chaos.soak``: tens of thousands of jobs through one worker, whose memory must not grow."""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from benchmarks.machine import commit, machine, versions
from tests.chaos.pictures import picture
from tests.chaos.stack import Stack, running_stack
from tidegate.store import connect

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "reliability" / "soak.json"
#: Jobs that are in flight at a time; children end after so many batches, and results are kept so long.
WINDOW = 64
CHILD_CALLS = 400
RESULT_TTL_SECONDS = 20
#: Memory is compared between the end and the time when so many jobs had run.
WARM_JOBS = 5_000
GROWTH = 1.10
TOLD_EVERY = 1_000


@dataclass(frozen=True)
class Sample:
    """Resident memory after so many jobs, in bytes, by process: the worker's own, its largest child's, the API's."""

    jobs: int
    parent: int
    children: int
    api: int


def main() -> int:
    """Run, compare, wait until the results have gone, and look at what is left in Redis."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--jobs", type=int, default=30_000)
    jobs = parser.parse_args().jobs
    before = machine()
    began = time.monotonic()
    with running_stack(
        workers=1, child_max_calls=CHILD_CALLS, result_ttl_seconds=RESULT_TTL_SECONDS, dead_letter_ttl_seconds=0
    ) as stack:
        samples = soak(stack, jobs)
        left = keys_left(stack)
    growth = {part: growth_of(samples, part) for part in ("parent", "children", "api")}
    good = not left and all(value <= GROWTH for value in growth.values())
    told = " ".join(f"{part}_growth={value:.3f}" for part, value in growth.items())
    print(f"jobs={jobs} seconds={time.monotonic() - began:.0f} {told} keys_left={sorted(left)}")
    facts = {"machine": before, "commit": commit(), "versions": versions()}
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(
        json.dumps(
            facts | {"jobs": jobs, "growth": growth, "keys_left": sorted(left), "samples": [vars(s) for s in samples]},
            indent=2,
        )
    )
    return 0 if good else 1


def soak(stack: Stack, jobs: int) -> list[Sample]:
    """Run so many jobs, and measure now and then."""
    samples = []
    with httpx.Client(base_url=stack.api.url, timeout=60) as http, ThreadPoolExecutor(WINDOW) as threads:
        for done in range(TOLD_EVERY, jobs + 1, TOLD_EVERY):
            for status in threads.map(lambda number: _classify(http, number), range(done - TOLD_EVERY, done)):
                assert status == "succeeded", status
            samples.append(measure(stack, done))
            print(f"{done} jobs: {samples[-1]}", flush=True)
    return samples


def _classify(http: httpx.Client, number: int) -> str:
    answer = http.post("/v1/jobs", content=picture(number), headers={"Content-Type": "image/png", "Prefer": "wait=50"})
    return str(answer.json().get("status"))


def measure(stack: Stack, jobs: int) -> Sample:
    """What the processes hold now."""
    (worker,) = stack.workers
    children = [child.memory_info().rss for child in worker.children()]
    return Sample(
        jobs, psutil.Process(worker.pid).memory_info().rss, max(children, default=0), stack.api.resident_bytes()
    )


def growth_of(samples: list[Sample], part: str) -> float:
    """Memory of the last three measurements against those around the time when all was warm."""
    warm = [getattr(sample, part) for sample in samples if WARM_JOBS - 2_000 <= sample.jobs <= WARM_JOBS]
    last = [getattr(sample, part) for sample in samples[-3:]]
    return float(median(last) / median(warm))


def keys_left(stack: Stack) -> set[str]:
    """Keys of the ledger beside the catalogue, once results had the time to go."""
    until = time.monotonic() + RESULT_TTL_SECONDS + 30
    while True:
        left = _ledger_keys(stack)
        if not left or time.monotonic() > until:
            return left
        time.sleep(1)


def _ledger_keys(stack: Stack) -> set[str]:
    prefix = stack.settings.key_prefix
    with connect(stack.settings) as client:
        keys: Any = client.keys(f"{prefix}*")
    found = {key.decode().removeprefix(prefix) for key in keys}
    # Locks and marks of a living worker, which end by themselves when it does.
    return found - {"catalogue", "sweep", "swept", "probe", "seen"}


if __name__ == "__main__":
    sys.exit(main())
