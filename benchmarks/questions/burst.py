"""A burst of ten times what the GPU can do: is Triton spared it, and does the queue drain as fast as the GPU goes?

The stub of Triton counts the requests that it holds at any moment. The limit is the number of the worker's children:
each has one batch at Triton, and all else waits in Redis.
"""

from __future__ import annotations

import time

from benchmarks.pace import wait_for
from benchmarks.results import Result, Series
from benchmarks.rig import REAL_APP, bench_redis, bench_settings, running, scratch, wait_for_model, worker_program
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import MAX_BATCH, GpuCount, GpuTimes, StubGpu
from tests.integration.stub_triton import CLASSES, MODEL, image_of, running_stub
from tests.integration.workers import Client
from tidegate.local.options import StackOptions

#: 32 images take 320 ms, so the GPU does 100 images a second.
TIMES = GpuTimes(base_ms=20.0, per_image_ms=9.375)
TIMES_THE_RATE = 10
BURST_SECONDS, WATCH_SECONDS = 10.0, 12.0
#: How often a part of the burst is handed in.
STEP_SECONDS = 0.05


def measure(scale: Scale) -> Result:
    """Hand in the burst, then watch the drain for a while."""
    children = StackOptions().concurrency
    gpu = StubGpu(TIMES)
    burst_seconds = scale.seconds(BURST_SECONDS, least=2)
    with scratch() as folder, bench_redis(folder / "redis") as redis, running_stub(max_batch=MAX_BATCH) as stub:
        stub.behaviour = gpu
        client = Client(bench_settings(redis, triton_url=stub.url))
        with running(worker_program(client.settings, folder, app=REAL_APP, concurrency=children)):
            wait_for_model(client, MODEL)
            ids, achieved = send_burst(client, rate=TIMES_THE_RATE * TIMES.full_rate, seconds=burst_seconds)
            rate, drained = watch(gpu, scale.seconds(WATCH_SECONDS, least=3))
        wrong = wrong_answers(client, ids)
    series = [
        Series("burst", "jobs/s submitted", [achieved], len(ids)),
        Series("drain after it", "images/s", [rate], drained.images, wrong),
        Series("Triton", "most requests in flight", [gpu.most_in_flight], gpu.count.batches),
    ]
    figures = {
        "inflight_max": float(gpu.most_in_flight),
        "inflight_limit": float(children),
        "burst_times_gpu_rate": achieved / TIMES.full_rate,
        "drain_vs_gpu_rate": rate / TIMES.full_rate,
    }
    conditions = {"base_ms": TIMES.base_ms, "per_image_ms": TIMES.per_image_ms, "burst_seconds": burst_seconds}
    return Result("burst", series, figures, conditions)


def send_burst(client: Client, *, rate: float, seconds: float) -> tuple[list[str], float]:
    """Submit at a rate for some seconds; gives the ids, and the rate that was reached."""
    pictures = [image_of(number) for number in range(CLASSES)]
    ids: list[str] = []
    started = time.monotonic()
    while (passed := time.monotonic() - started) < seconds:
        due = round(rate * (passed + STEP_SECONDS)) - len(ids)
        ids += client.submit(MODEL, [pictures[(len(ids) + number) % CLASSES] for number in range(due)])
        time.sleep(max(0.0, started + passed + STEP_SECONDS - time.monotonic()))
    return ids, len(ids) / (time.monotonic() - started)


def watch(gpu: StubGpu, seconds: float) -> tuple[float, GpuCount]:
    """Images a second from the end of one batch to the end of another, some seconds later."""
    before, started = _next_end(gpu)
    time.sleep(seconds)
    after, ended = _next_end(gpu)
    done = after - before
    return done.images / (ended - started), done


def _next_end(gpu: StubGpu) -> tuple[GpuCount, float]:
    count = gpu.count
    wait_for(lambda: gpu.count != count, seconds=30, what="the GPU has ended a batch")
    return gpu.count, time.monotonic()


def wrong_answers(client: Client, ids: list[str]) -> int:
    """How many of the jobs that have ended did not get the class of their own image."""
    wrong = 0
    for number, job_id in enumerate(ids):
        job = client.job(job_id)
        if job.state.terminal:
            wrong += job.result is None or job.result[0]["class_id"] != number % CLASSES
    return wrong


if __name__ == "__main__":
    run_script(measure)
