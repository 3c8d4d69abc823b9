"""``python -m tests.chaos.soak``: thousands of jobs through one worker, whose memory must not grow.

Tens of thousands of small images, or with ``--mixed`` fewer of all sizes, some of 40 megapixels among them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import psutil

from benchmarks.machine import commit, machine, versions
from tests.chaos.pictures import picture
from tests.chaos.stack import Stack, running_stack
from tidegate.store import connect

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "reliability"
#: Jobs that are in flight at a time; results are kept so long.
WINDOW = 64
RESULT_TTL_SECONDS = 20
TOLD_EVERY = 1_000
LARGE = (8_000, 5_000)


@dataclass(frozen=True)
class Plan:
    """A soak.

    Attributes:
        jobs: how many.
        warm_jobs: memory is compared between the end and the time when so many had run.
        growth: most that it may be then, as a multiple.
        child_calls: after so many batches a child ends.
        sizes: of the images, in turns.
        large_every: every so many jobs one has an image of 40 megapixels; 0 for none.
        results: the file that they go into.
    """

    jobs: int
    warm_jobs: int
    growth: float
    child_calls: int
    sizes: tuple[tuple[int, int], ...]
    large_every: int
    results: str

    def image(self, number: int) -> bytes:
        """The image of the job with this number."""
        if self.large_every and number % self.large_every == 0:
            return _large()
        return picture(number, self.sizes[number % len(self.sizes)])


SMALL = Plan(30_000, 5_000, 1.10, 400, ((4, 4),), 0, "soak.json")
MIXED = Plan(10_000, 2_000, 1.15, 200, ((4, 4), (640, 480), (64, 64), (1280, 720)), 200, "soak_mixed.json")


@dataclass(frozen=True)
class Sample:
    """What the processes hold after so many jobs.

    Attributes:
        parent: resident memory in bytes of the worker's main process; ``children``: of its largest child.
        api: that of the API.
        processes: the worker's, with its children.
        sockets: its connections to Triton.
    """

    jobs: int
    parent: int
    children: int
    api: int
    processes: int
    sockets: int


def main() -> int:
    """Run, compare, wait until the results have gone, and look at what is left in Redis."""
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--jobs", type=int, help="another number of them")
    parser.add_argument("--mixed", action="store_true", help="images of all sizes")
    arguments = parser.parse_args()
    plan = MIXED if arguments.mixed else SMALL
    jobs = arguments.jobs or plan.jobs
    before = machine()
    began = time.monotonic()
    with running_stack(
        workers=1, child_max_calls=plan.child_calls, result_ttl_seconds=RESULT_TTL_SECONDS, dead_letter_ttl_seconds=0
    ) as stack:
        samples = soak(stack, plan, jobs)
        left = keys_left(stack)
    growth = {part: growth_of(samples, part, plan.warm_jobs) for part in ("parent", "children", "api")}
    # One more, for a child that has just ended.
    connected = all(sample.sockets <= sample.processes + 1 for sample in samples)
    good = not left and connected and all(value <= plan.growth for value in growth.values())
    growths = " ".join(f"{part}_growth={value:.3f}" for part, value in growth.items())
    print(f"jobs={jobs} seconds={time.monotonic() - began:.0f} {growths} keys_left={sorted(left)}")
    facts = {"machine": before, "commit": commit(), "versions": versions()}
    found = {"jobs": jobs, "growth": growth, "keys_left": sorted(left), "samples": [vars(each) for each in samples]}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / plan.results).write_text(json.dumps({**facts, **found}, indent=2))
    return 0 if good else 1


def soak(stack: Stack, plan: Plan, jobs: int) -> list[Sample]:
    """Run so many jobs, and measure now and then."""
    samples = []
    with httpx.Client(base_url=stack.api.url, timeout=60) as http, ThreadPoolExecutor(WINDOW) as threads:
        for done in range(TOLD_EVERY, jobs + 1, TOLD_EVERY):
            for status in threads.map(
                lambda number: _classify(http, plan.image(number)), range(done - TOLD_EVERY, done)
            ):
                assert status == "succeeded", status
            samples.append(measure(stack, done))
            print(f"{done} jobs: {samples[-1]}", flush=True)
    return samples


@lru_cache(maxsize=1)
def _large() -> bytes:
    return picture(1, LARGE)


def _classify(http: httpx.Client, image: bytes) -> str:
    answer = http.post("/v1/jobs", content=image, headers={"Content-Type": "image/png", "Prefer": "wait=50"})
    return str(answer.json().get("status"))


def measure(stack: Stack, jobs: int) -> Sample:
    """What the processes hold now."""
    (worker,) = stack.workers
    parent, children = psutil.Process(worker.pid), worker.children()
    return Sample(
        jobs,
        parent=parent.memory_info().rss,
        children=max((child.memory_info().rss for child in children), default=0),
        api=stack.api.resident_bytes(),
        processes=1 + len(children),
        sockets=sum(_sockets_to(stack.triton.grpc_url, process) for process in (parent, *children)),
    )


def _sockets_to(url: str, process: psutil.Process) -> int:
    port = int(url.rpartition(":")[2])
    return sum(bool(each.raddr) and each.raddr.port == port for each in process.net_connections("tcp"))


def growth_of(samples: list[Sample], part: str, warm_jobs: int) -> float:
    """Memory of the last three measurements against those around the time when all was warm."""
    warm = [getattr(sample, part) for sample in samples if warm_jobs - 2_000 <= sample.jobs <= warm_jobs]
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
