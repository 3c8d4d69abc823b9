"""The same drain with Celery's events on and a Flower watching: every job shows its whole life there."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.contestants import Contestant, Tidegate, celery_peer
from benchmarks.questions.drain import compare
from benchmarks.results import Result
from benchmarks.rig import bench_redis, scratch
from benchmarks.script import Scale, run_script


def measure(scale: Scale) -> Result:
    """Ours and plain Celery, in turns."""
    with scratch() as folder, ExitStack() as stack:
        contestants: list[Contestant] = [
            Tidegate(stack.enter_context(bench_redis(folder / "tidegate")), folder),
            celery_peer("celery", "plain_celery", stack.enter_context(bench_redis(folder / "celery")), folder),
        ]
        return compare("drain_events", contestants, scale.at_most(rounds=2), events=True)


if __name__ == "__main__":
    run_script(measure)
