"""Three times more than the GPU can do, each job with a deadline: how many are answered in time, beside a plain queue?

A plain queue takes all in, first in, first out. Once the jobs at its head have waited longer than their clients do, all
that the GPU does is in vain. Told the deadlines, Tidegate refuses at the door what would come too late, and what it
takes it answers in time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from benchmarks.pace import wait_for
from benchmarks.results import Result, Series
from benchmarks.rig import REAL_APP, bench_redis, bench_settings, running, scratch, wait_for_model, worker_program
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import MAX_BATCH, GpuTimes, StubGpu
from tests.integration.stub_triton import MODEL, image_of, running_stub
from tests.integration.workers import Client
from tidegate.jobs import State
from tidegate.local.options import StackOptions

#: 32 images take 320 ms, so the GPU does 100 images a second.
TIMES = GpuTimes(base_ms=20.0, per_image_ms=9.375)
OVERLOAD = 3
DEADLINE_MS = 3000
LOAD_SECONDS = 20.0
#: How often a part of the load is handed in.
STEP_SECONDS = 0.05


@dataclass(frozen=True)
class Outcome:
    """What became of the jobs of one contestant.

    Attributes:
        submitted: in all.
        accepted: of these.
        in_time: answered before their deadline, by Redis's clock.
        late: answered after it.
    """

    submitted: int
    accepted: int
    in_time: int
    late: int


def measure(scale: Scale) -> Result:
    """Put the same load on both, one after the other."""
    seconds = scale.seconds(LOAD_SECONDS, least=8)
    told = run(seconds, expires_in_ms=DEADLINE_MS)
    plain = run(seconds, expires_in_ms=None)
    figures = {
        "goodput_vs_gpu": told.in_time / seconds / TIMES.full_rate,
        "plain_goodput_vs_gpu": plain.in_time / seconds / TIMES.full_rate,
        "kept_promises": told.in_time / max(1, told.accepted),
    }
    series = [
        Series("deadlines told", "answers/s in time", [told.in_time / seconds], told.submitted, told.late),
        Series("plain queue", "answers/s in time", [plain.in_time / seconds], plain.submitted),
    ]
    conditions = {"overload": OVERLOAD, "deadline_ms": DEADLINE_MS, "seconds": seconds, "gpu_rate": TIMES.full_rate}
    return Result("deadlines", series, figures, conditions)


def run(seconds: float, *, expires_in_ms: int | None) -> Outcome:
    """Submit for some seconds, wait until all that was taken has ended, and count."""
    with scratch() as folder, bench_redis(folder / "redis") as redis, running_stub(max_batch=MAX_BATCH) as stub:
        stub.behaviour = StubGpu(TIMES)
        client = Client(bench_settings(redis, triton_url=stub.url))
        children = StackOptions().concurrency
        with running(worker_program(client.settings, folder, app=REAL_APP, concurrency=children)):
            wait_for_model(client, MODEL)
            ids = load(client, rate=OVERLOAD * TIMES.full_rate, seconds=seconds, expires_in_ms=expires_in_ms)
            wait_for(lambda: not client.redis.exists(f"{client.settings.key_prefix}open"), seconds=120, what="the end")
        return count(client, ids)


def load(client: Client, *, rate: float, seconds: float, expires_in_ms: int | None) -> list[str]:
    """Submit at a rate for some seconds; gives the ids of all, also of those that were refused."""
    ids: list[str] = []
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        due = round(rate * (passed + STEP_SECONDS)) - len(ids)
        ids += client.submit(MODEL, [image_of(1)] * due, expires_in_ms=expires_in_ms)
        time.sleep(max(0.0, started + passed + STEP_SECONDS - time.monotonic()))
    return ids


def count(client: Client, ids: list[str]) -> Outcome:
    """Sort the jobs by when they were answered."""
    records = [record for record in map(client.ledger.get, ids) if record is not None]
    waits = [
        record.finished_ms - record.created_ms
        for record in records
        if record.state is State.SUCCEEDED and record.finished_ms is not None
    ]
    in_time = sum(wait <= DEADLINE_MS for wait in waits)
    return Outcome(len(ids), len(records), in_time, len(waits) - in_time)


if __name__ == "__main__":
    run_script(measure)
