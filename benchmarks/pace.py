"""Watching work in progress: how fast jobs end, and what processor time that takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

#: How often the count of ended jobs is looked at; each look is one command to Redis.
LOOK_SECONDS = 0.02


@dataclass(frozen=True)
class Pace:
    """What was seen between two moments of a drain.

    Attributes:
        jobs: how many ended in between.
        seconds: how long that took.
        cpu_seconds: user and system time of the watched processes meanwhile.
    """

    jobs: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.jobs / self.seconds

    @property
    def cpu_us_per_job(self) -> float:
        """Microseconds of processor time a job."""
        return self.cpu_seconds / self.jobs * 1e6


def family(pid: int) -> list[psutil.Process]:
    """A process and all that it has started."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def cpu_seconds(processes: Sequence[psutil.Process]) -> float:
    """User and system time that these processes have taken so far."""
    times = [process.cpu_times() for process in processes]
    return float(sum(one.user + one.system for one in times))


def wait_for(condition: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it is not, in that time.
    """
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s still not: {what}")
        time.sleep(LOOK_SECONDS)


def watch_drain(
    ended: Callable[[], int], pid: int, *, begin: int, end: int, most_seconds: float, start_seconds: float = 60.0
) -> Pace:
    """Watch a queue being drained, from the moment when ``begin`` jobs have ended until ``end`` have.

    The first jobs are left out, since processes warm up on them; so is the rest where a slow contestant would take
    longer than ``most_seconds``.

    Args:
        ended: how many jobs have ended so far.
        pid: of the worker's main process; its children are found when the watch begins.
        begin: how many jobs have ended when the watch begins.
        end: how many have when it is over.
        most_seconds: after which it is over as well.
        start_seconds: how long the first jobs may take.

    Raises:
        TimeoutError: the first jobs did not end within ``start_seconds``.
    """
    wait_for(lambda: ended() >= begin, seconds=start_seconds, what=f"{begin} jobs ended")
    processes = family(pid)
    first, used, started = ended(), cpu_seconds(processes), time.monotonic()
    while True:
        time.sleep(LOOK_SECONDS)
        now, count = time.monotonic(), ended()
        if count >= end or now - started >= most_seconds:
            return Pace(count - first, now - started, cpu_seconds(processes) - used)
