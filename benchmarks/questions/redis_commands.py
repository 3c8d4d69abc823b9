"""How many commands a worker sends to Redis for each job, a script counted as one, in full batches."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.commands import CommandCount, Monitor, monitoring
from benchmarks.contestants import Contestant, Tidegate, celery_peer
from benchmarks.pace import wait_for
from benchmarks.results import Result, Series
from benchmarks.rig import bench_redis, running, scratch
from benchmarks.script import Scale, run_script

JOBS = 4_000
PEER_JOBS = 1_000


def measure(scale: Scale) -> Result:
    """Count each contestant's commands, one after the other."""
    with scratch() as folder, ExitStack() as stack:
        redises = {name: stack.enter_context(bench_redis(folder / name)) for name in ("ours", "celery", "batches")}
        contestants: list[tuple[Contestant, int]] = [
            (Tidegate(redises["ours"], folder), scale.count(JOBS, least=1_000)),
            (celery_peer("celery", "plain_celery", redises["celery"], folder), scale.count(PEER_JOBS, least=200)),
            (celery_peer("celery-batches", "celery_batches", redises["batches"], folder), scale.count(PEER_JOBS)),
        ]
        counted = [(contestant, *count_commands(contestant, jobs)) for contestant, jobs in contestants]
        series = [
            Series(contestant.name, "commands/job", [count.from_clients / jobs], jobs, contestant.wrong())
            for contestant, jobs, count in counted
        ]
        return Result(
            "redis_commands",
            series,
            {
                "redis_commands_per_job": series[0].median,
                "celery_redis_commands_per_job": series[1].median,
                "celery_batches_redis_commands_per_job": series[2].median,
            },
            conditions={
                contestant.name: {"inside_scripts": count.inside_scripts, "sent": count.by_name}
                for contestant, _, count in counted
            },
            peers={contestant.name: contestant.versions for contestant, *_ in counted if contestant.versions},
        )


def count_commands(contestant: Contestant, jobs: int) -> tuple[int, CommandCount]:
    """How many jobs ended between two marks well inside a drain, and the commands meanwhile."""
    contestant.fill(jobs)
    with monitoring(contestant.redis) as monitor, running(contestant.worker()):
        before = _mark_after(contestant, monitor, "begin", jobs // 5)
        after = _mark_after(contestant, monitor, "end", jobs * 4 // 5)
        return after - before, monitor.between("begin", "end")


def _mark_after(contestant: Contestant, monitor: Monitor, name: str, jobs: int) -> int:
    wait_for(lambda: contestant.ended() >= jobs, seconds=90, what=f"{jobs} jobs ended")
    monitor.mark(name)
    return contestant.ended()


if __name__ == "__main__":
    run_script(measure)
