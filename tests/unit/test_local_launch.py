"""Parts of the stack end with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import psutil

from tidegate.local import launch

LIMIT_SECONDS = 10

# Starts a tied process, tells its pid, and waits to be killed.
STARTER = """
import subprocess, sys
from tidegate.local.launch import tied_to_parent
part = subprocess.Popen(tied_to_parent(["sleep", "60"]))
print(part.pid, flush=True)
part.wait()
"""


def _is_gone(process: psutil.Process) -> bool:
    """Whether it has ended, be it that nobody has asked for its exit status yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE or not process.is_running()
    except psutil.NoSuchProcess:
        return True


def test_part_ends_when_its_starter_is_killed() -> None:
    """Not even kill -9 of the supervisor leaves a part behind."""
    with subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        part = psutil.Process(int(starter.stdout.readline()))
        _wait_until_it_is(part, "sleep")
        starter.send_signal(signal.SIGKILL)
        starter.wait()
    try:
        part.wait(LIMIT_SECONDS)
    except psutil.TimeoutExpired:
        assert _is_gone(part)


def test_part_takes_the_place_of_the_launcher() -> None:
    """The pid that the supervisor knows is the part's own, so that signals reach it."""
    with subprocess.Popen(launch.tied_to_parent(["sleep", "60"])) as part:
        _wait_until_it_is(psutil.Process(part.pid), "sleep")
        part.terminate()
        assert part.wait(LIMIT_SECONDS) == -signal.SIGTERM


def test_part_does_not_start_when_its_starter_is_gone() -> None:
    """A starter that died before the launcher ran would never be noticed again."""
    nobody = launch.tied_to_parent(["echo", "started"])
    nobody[nobody.index(str(os.getpid()))] = str(psutil.Process().ppid())
    ended = subprocess.run(nobody, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert ended.returncode == 1
    assert ended.stdout == ""
    assert "is gone" in ended.stderr


def _wait_until_it_is(process: psutil.Process, name: str) -> None:
    """Wait for the launcher to have become the part."""
    for _ in range(1000):
        if process.name() == name:
            return
        psutil.wait_procs([process], timeout=LIMIT_SECONDS / 1000)
    raise AssertionError(f"it is still {process.name()}")
