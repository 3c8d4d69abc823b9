"""A lone job at idle, from its submission over HTTP to its answer by long-poll, beyond decoding and inference.

Real API, real worker, real Triton with the simulated GPU. What a job reports of its own decoding and inference is
taken off. Beside it stands plain Celery without any HTTP, asked every 10 ms whether its empty task is done.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from benchmarks.contestants import celery_peer
from benchmarks.environments import Environment
from benchmarks.http_client import HttpClient
from benchmarks.photo_rig import PhotoRig, photo_rig
from benchmarks.photos import SMALL_SIZES, photo_mix
from benchmarks.results import Result, Series, percentile
from benchmarks.rig import bench_redis, running, running_api, scratch, url_of, wait_for_model
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import MODEL, GpuTimes
from tidegate.local.options import StackOptions

JOBS = 250
IMAGE_BYTES = 40_000
#: So that each job meets an idle system.
PAUSE_SECONDS = 0.01


def measure(scale: Scale) -> Result:
    """Ask for jobs one after the other, of ours and then of Celery."""
    jobs = scale.count(JOBS, least=30)
    with scratch() as folder:
        overheads, totals, wrong = through_api(folder, jobs)
        celery = through_celery(folder, jobs)
    series = [
        Series("tidegate", "ms beyond decode and inference", overheads, jobs, wrong),
        Series("tidegate", "ms in all", totals, jobs),
        Series("celery, polled every 10 ms", "ms beyond decode and inference", celery, jobs),
    ]
    return Result(
        "lone_job",
        series,
        {
            "idle_overhead_p50_ms": percentile(overheads, 0.50),
            "idle_overhead_p95_ms": percentile(overheads, 0.95),
            "celery_idle_p50_ms": percentile(celery, 0.50),
            "celery_idle_p95_ms": percentile(celery, 0.95),
        },
        {"children": StackOptions().concurrency, "base_ms": GpuTimes.base_ms, "per_image_ms": GpuTimes.per_image_ms},
    )


def through_api(folder: Path, jobs: int) -> tuple[list[float], list[float], int]:
    """Milliseconds beyond decoding and inference and in all, a job, and how many answers were wrong."""
    photos = photo_mix(SMALL_SIZES, of_each=5)
    with (
        photo_rig(photos, GpuTimes(), folder) as rig,
        running(rig.worker(StackOptions().concurrency)),
        running_api(rig.client.settings, folder) as url,
    ):
        wait_for_model(rig.client, MODEL)
        client = HttpClient(url)
        # The first jobs meet children and connections that are not warm.
        asked = [_ask(client, rig, number) for number in range(jobs + 10)][10:]
        client.close()
    return [one[0] for one in asked], [one[1] for one in asked], sum(not one[2] for one in asked)


def _ask(client: HttpClient, rig: PhotoRig, number: int) -> tuple[float, float, bool]:
    photo, expected = rig.photos[number % len(rig.photos)], rig.expected[number % len(rig.photos)]
    time.sleep(PAUSE_SECONDS)
    started = time.monotonic()
    job = client.request("POST", f"/v1/jobs?model={MODEL}", photo, {"Content-Type": "image/jpeg"})
    job = client.request("GET", f"{job['urls']['get']}?wait=30")
    total = (time.monotonic() - started) * 1000
    right = job["status"] == "succeeded" and job["result"]["predictions"][0]["class_id"] == expected
    spent = job["timings"]["preprocess_ms"] + job["timings"]["infer_ms"] if right else 0.0
    return total - spent, total, right


def through_celery(folder: Path, jobs: int) -> list[float]:
    """Milliseconds a job, with a task that does nothing."""
    with bench_redis(folder / "celery") as client:
        peer = celery_peer("celery", "plain_celery", client, folder)
        with running(peer.worker()):
            asker = Environment("plain_celery")
            printed = asker.run(
                "-m", "benchmarks.peers.plain_celery.ask", str(jobs), str(IMAGE_BYTES), REDIS_URL=url_of(client)
            )
    times: list[float] = json.loads(printed)
    return times


if __name__ == "__main__":
    run_script(measure)
