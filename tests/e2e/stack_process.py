"""``tidegate up`` and ``tidegate demo`` as processes, and a way to find every process that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tidegate.settings import PREFIX

MARK = "STACK_UNDER_TEST"
END_SECONDS = 60
CHECKOUT = Path(__file__).resolve().parents[2]


class TidegateProcess:
    """One run of the command line, whose family is known by a mark in its environment, or by the folder it runs in.

    Attributes:
        temporary: the folder that it and its parts take for temporary files; nothing else does.
        output: the file that takes all it prints.
    """

    def __init__(self, arguments: Sequence[str], *, folder: Path, environ: Mapping[str, str]) -> None:
        self._folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.output = folder / "output"
        self._mark = uuid.uuid4().hex
        with self.output.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tidegate.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=self._environ(environ),
                # As a terminal does it: a Ctrl-C goes to the whole group.
                start_new_session=True,
            )

    def _environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The test run's own, without its settings, so that they cannot matter."""
        inherited = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
        own = {MARK: self._mark, "TMPDIR": str(self.temporary), "PYTHONPATH": str(CHECKOUT)}
        return inherited | own | dict(environ)

    @property
    def pid(self) -> int:
        """The supervisor's process id."""
        return self._process.pid

    @property
    def printed(self) -> str:
        """All it has printed so far."""
        return self.output.read_text(errors="replace")

    def family(self) -> list[psutil.Process]:
        """Every process that is ours, whoever its parent is by now."""
        return [process for process in psutil.process_iter() if self._is_ours(process)]

    def programs(self) -> str:
        """The command lines of the family, a line each."""
        return "\n".join(" ".join(_command_line(process)) for process in self.family())

    def press_ctrl_c(self) -> None:
        """What a terminal does."""
        os.killpg(self.pid, signal.SIGINT)

    def send(self, number: int) -> None:
        """Send a signal to the supervisor alone."""
        self._process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        return self._process.wait(END_SECONDS)

    def wait_until(self, condition: Callable[[], bool], *, seconds: float = END_SECONDS) -> None:
        """Return as soon as something is so.

        Raises:
            AssertionError: it ended before that, or the time is over; with what it printed.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            assert self._process.poll() is None, f"it ended by itself and printed:\n{self.printed}"
            assert time.monotonic() < deadline, f"waited {seconds:g} s; it printed:\n{self.printed}"
            time.sleep(0.02)

    def destroy(self) -> None:
        """Kill whoever is left."""
        for process in self.family():
            process.kill()
        self._process.wait(END_SECONDS)

    def _is_ours(self, process: psutil.Process) -> bool:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return False
            if process.environ().get(MARK) == self._mark:
                return True
            # Redis writes its title where its environment was.
            return Path(process.cwd()).is_relative_to(self._folder)
        except psutil.Error:
            return False


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


@contextmanager
def tidegate(*arguments: str, folder: Path, environ: Mapping[str, str] | None = None) -> Iterator[TidegateProcess]:
    """Run ``tidegate ...`` in an empty folder while the block runs; whatever the test leaves is killed."""
    process = TidegateProcess(arguments, folder=folder, environ=environ or {})
    try:
        yield process
    finally:
        process.destroy()
