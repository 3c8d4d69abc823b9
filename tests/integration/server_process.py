"""A server on loopback that a test may stop, kill, pause and start again on the same ports."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from tidegate.local.launch import tied_to_parent

LOG_LINES_TOLD = 30


class ServerProcess:
    """One server program; a subclass knows its addresses and how to ask whether it is ready.

    Attributes:
        log: the file that takes all it prints, over all its runs.
    """

    ready_within_seconds = 30.0
    stop_within_seconds = 20.0

    def __init__(self, command: Sequence[str], *, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log = log
        self._command = command
        self._environ = environ
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id of the present run, or of the last."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives, be it paused."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it, also again, and return once it is ready.

        Raises:
            RuntimeError: it ended instead, or is not ready in time; with its last log lines.
        """
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                tied_to_parent(self._command), env=self._environ, stdout=output, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + self.ready_within_seconds
        while not self.is_ready():
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"{self._command[0]} did not become ready; its last lines:\n{self.last_lines()}")
            time.sleep(0.02)
        return self

    def is_ready(self) -> bool:
        """Whether it serves; asked over the network."""
        raise NotImplementedError

    def stop(self) -> None:
        """Ask it to end, as an operator does, and wait until it has; kill it when it takes too long."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as the OOM killer does."""
        self._end(signal.SIGKILL)

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        assert self._process is not None, "it was never started"
        self._process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Wait until it has ended; gives its exit code, or None when it has not."""
        assert self._process is not None, "it was never started"
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """End a pause."""
        os.kill(self.pid, signal.SIGCONT)

    def last_lines(self) -> str:
        """The end of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-LOG_LINES_TOLD:])

    def _end(self, by: signal.Signals) -> None:
        if self._process is None or not self.running:
            return
        self._process.send_signal(by)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(self.stop_within_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_ports(count: int) -> list[int]:
    """TCP ports on loopback that nobody listens on at this moment, all different."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [listener.getsockname()[1] for listener in held]
