"""Whether a long queue is slower than a short one, and what a queued job takes in Redis beside its image.

The rates follow from the times at which Redis says the jobs ended. The short queue is filled while the worker's
main process is held, so that a thousand jobs wait before the first is taken; the long one before the worker starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import redis

from benchmarks.contestants import Tidegate
from benchmarks.null_contract import MODEL
from benchmarks.pace import wait_for
from benchmarks.results import Result, Series
from benchmarks.rig import bench_redis, running, scratch, wait_for_model
from benchmarks.script import Scale, run_script

DEPTH, SHORT = 100_000, 1_000
SHORT_RUNS = 11
#: The first jobs of the long drain, on which the worker warms up, and those until the queue is half empty.
WARM_UP, WATCHED = 4_000, 50_000
IMAGE_BYTES = 200
READ_BATCH = 1_000


def measure(scale: Scale) -> Result:
    """Fill and drain the long queue, then the short one again and again."""
    depth, watched = scale.count(DEPTH), scale.count(WATCHED)
    with scratch() as folder, bench_redis(folder / "redis") as client:
        ours = Tidegate(client, folder, image_bytes=IMAGE_BYTES)
        # So that what Redis allocates once is there before.
        ours.fill(SHORT)
        ours.redis.flushall()
        empty = used_bytes(client)
        ours.fill(depth)
        per_job = (used_bytes(client) - empty) / depth - IMAGE_BYTES
        with running(ours.worker()):
            wait_for(lambda: ours.ended() >= watched, seconds=120, what=f"{watched} jobs ended")
        long_wrong = ours.wrong()
        long = rates(ends(ours)[scale.count(WARM_UP) : watched], SHORT)
        short, short_wrong = short_runs(ours, round(SHORT_RUNS * scale.share) + 2)
    series = [
        Series(f"{depth:,} queued", f"jobs/s over {SHORT:,} jobs", long, len(long) * SHORT, long_wrong),
        Series(f"{SHORT:,} queued", f"jobs/s over {SHORT:,} jobs", short, len(short) * SHORT, short_wrong),
        Series(f"{depth:,} queued", "bytes of Redis/job", [per_job], depth),
    ]
    figures = {"drain_100k_vs_1k": series[0].median / series[1].median, "redis_bytes_per_job": per_job}
    return Result("backlog", series, figures, conditions={"depth": depth, "image_bytes": IMAGE_BYTES})


def short_runs(ours: Tidegate, runs: int) -> tuple[list[float], int]:
    """Rates of draining a short queue by a worker that waits for it, and how many answers were wrong."""
    found, wrong = [], 0
    ours.redis.flushall()
    with running(ours.worker()) as worker:
        wait_for_model(ours.client, MODEL)
        for run in range(runs):
            worker.pause()
            ours.fill(SHORT, keep=True)
            worker.resume()
            wait_for(lambda: ours.left() == 0, seconds=60, what="the short queue is empty")
            wrong += ours.wrong()
            # The first two warm the worker up.
            if run > 1:
                found += whole_rate(ends(ours))
    return found, wrong


def ends(ours: Tidegate) -> list[int]:
    """When the jobs ended, in order: milliseconds by Redis's clock."""
    times: list[int] = []
    for start in range(0, len(ours.ids), READ_BATCH):
        with ours.redis.pipeline(transaction=False) as pipeline:
            for job_id in ours.ids[start : start + READ_BATCH]:
                pipeline.hget(f"{ours.client.settings.key_prefix}job:{job_id}", "finished_ms")
            times += [int(time) for time in pipeline.execute() if time is not None]
    return sorted(times)


def rates(times: Sequence[int], step: int) -> list[float]:
    """Jobs a second over each ``step`` jobs."""
    marks = times[::step]
    return [step / (later - earlier) * 1000 for earlier, later in pairwise(marks) if later > earlier]


def whole_rate(times: Sequence[int]) -> list[float]:
    """Jobs a second from the end of the first batch to that of the last."""
    first, last = times[0], times[-1]
    after_first = sum(time > first for time in times)
    return [after_first / (last - first) * 1000] if last > first else []


def used_bytes(client: redis.Redis) -> int:
    """Memory that Redis holds for data, without what it set aside for clients and the append-only file."""
    facts: Any = client.info("memory")
    return int(facts["used_memory"]) - int(facts["mem_clients_normal"]) - int(facts["mem_aof_buffer"])


if __name__ == "__main__":
    run_script(measure)
