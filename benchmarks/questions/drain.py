"""How fast one worker process drains 10,000 queued jobs of 40 KB, without events, and what a job costs it.

The model does nothing, so all that is left is the queue: fetching, starting and ending a job, and writing its
result. Each contestant has a Redis of its own with the same settings; both kinds of plain Celery share one. The watch
begins when the first twentieth has ended; contestants that would take longer are watched for a few seconds, which
changes nothing about their rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from benchmarks.contestants import IMAGE_BYTES, Contestant, Tidegate, celery_peer, taskiq_peer
from benchmarks.pace import Pace, watch_drain
from benchmarks.results import Result, Series
from benchmarks.rig import bench_redis, running, scratch
from benchmarks.script import Scale, run_script

JOBS = 10_000
WATCH_SECONDS = 2.0
#: A variant of a peer, which is slow to fill and no part of any target: once is enough.
LATE_ACKS = "celery, late acks"


def measure(scale: Scale) -> Result:
    """Run the contestants in turns."""
    with scratch() as folder, ExitStack() as stack:
        redises = {
            name: stack.enter_context(bench_redis(folder / name))
            for name in ("tidegate", "celery", "batches", "taskiq")
        }
        contestants: list[Contestant] = [
            Tidegate(redises["tidegate"], folder),
            celery_peer("celery", "plain_celery", redises["celery"], folder),
            celery_peer(LATE_ACKS, "plain_celery", redises["celery"], folder, ACKS_LATE="1"),
            celery_peer("celery-batches", "celery_batches", redises["batches"], folder),
            taskiq_peer(redises["taskiq"], folder),
        ]
        return compare("drain", contestants, scale)


def compare(question: str, contestants: Sequence[Contestant], scale: Scale, *, events: bool = False) -> Result:
    """Drain each contestant's queue, in turns, and set the others' median rates beside ours."""
    jobs = scale.count(JOBS)
    paces: dict[str, list[Pace]] = {contestant.name: [] for contestant in contestants}
    wrong = dict.fromkeys(paces, 0)
    for turn in range(scale.rounds):
        for contestant in contestants:
            if turn and contestant.name == LATE_ACKS:
                continue
            paces[contestant.name].append(drain_once(contestant, jobs, events=events))
            wrong[contestant.name] += contestant.wrong()
    series = [
        series
        for name, seen in paces.items()
        for series in (
            Series(name, "jobs/s", [pace.rate for pace in seen], sum(pace.jobs for pace in seen), wrong[name]),
            Series(name, "CPU µs/job", [pace.cpu_us_per_job for pace in seen], sum(pace.jobs for pace in seen)),
        )
    ]
    return Result(
        question,
        series,
        _figures(contestants, series, events=events),
        conditions={"jobs": jobs, "image_bytes": IMAGE_BYTES, "worker_children": 1, "events": events},
        peers={contestant.name: contestant.versions for contestant in contestants if contestant.versions},
    )


def drain_once(contestant: Contestant, jobs: int, *, events: bool = False) -> Pace:
    """Fill a queue and watch one worker drain it, with Flower looking on where there are events."""
    contestant.fill(jobs)
    with ExitStack() as stack:
        if events:
            stack.enter_context(running(contestant.flower()))
        worker = stack.enter_context(running(contestant.worker(events=events)))
        return watch_drain(
            contestant.ended, worker.pid, begin=jobs // 20, end=jobs - jobs // 50, most_seconds=WATCH_SECONDS
        )


def _figures(contestants: Sequence[Contestant], series: Sequence[Series], *, events: bool) -> dict[str, float]:
    rates = {one.name: one.median for one in series if one.quantity == "jobs/s"}
    costs = {one.name: one.median for one in series if one.quantity != "jobs/s"}
    ours = contestants[0].name
    if events:
        return {"drain_events_vs_celery_events": rates[ours] / rates["celery"]}
    return {
        "drain_vs_celery": rates[ours] / rates["celery"],
        "drain_vs_celery_late_acks": rates[ours] / rates["celery, late acks"],
        "drain_vs_celery_batches": rates[ours] / rates["celery-batches"],
        "drain_vs_taskiq": rates[ours] / rates["taskiq"],
        "queue_cpu_us_per_job": costs[ours],
        "celery_cpu_us_per_job": costs["celery"],
    }


if __name__ == "__main__":
    run_script(measure)
