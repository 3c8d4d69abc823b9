"""How one part runs under honcho: its process, what is left of it when it ends, and what it printed.

Each part has a go-between: a process that honcho forks, which starts the part, reads its output and waits
for it. ``supervise.py`` puts these classes in the place of honcho's own.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from typing import Any, TextIO

from honcho.manager import SYSTEM_PRINTER_NAME
from honcho.printer import Message, Printer
from honcho.process import Popen, Process

from tidegate.local.launch import die_with_parent, tied_to_parent

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
KEPT_LINES = 20
ORPHAN_SECONDS = 10
"""What a part gets from SIGTERM to SIGKILL when the supervisor was killed; whole, as alarms are."""
_ORPHANED = signal.SIGUSR1
"""From the kernel: the supervisor is dead."""


class PartProcess(Process):  # type: ignore[misc]  # honcho ships no types
    """The go-between of one part, which ends the part should the supervisor be killed."""

    cmd: str

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._supervisor_pid = os.getpid()
        self._orphaned = False

    def run(self, events: Any = None, ignore_signals: bool = False) -> None:  # noqa: FBT001, FBT002 - honcho's signature
        """Start the part, and report its start, its lines and its end to ``events``."""
        for number in STOP_SIGNALS:
            # A Ctrl-C reaches us too. Not SIG_IGN: the part would inherit that.
            signal.signal(number, _do_nothing)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
        signal.signal(_ORPHANED, self._note_orphaned)
        try:
            die_with_parent(self._supervisor_pid, by=_ORPHANED)
        except ProcessLookupError:
            return
        self._child_ctor = self._start_part
        self.cmd = f"exec {shlex.join(tied_to_parent(shlex.split(self.cmd)))}"
        super().run(events, ignore_signals)

    def _note_orphaned(self, _number: int, _frame: object) -> None:
        self._orphaned = True

    def _start_part(self, command: str, **options: Any) -> SessionPopen:
        part = SessionPopen(command, **options)
        signal.signal(signal.SIGALRM, part.on_patience_over)
        signal.signal(_ORPHANED, part.on_orphaned)
        if self._orphaned:
            part.on_orphaned()
        return part


class SessionPopen(Popen):  # type: ignore[misc]  # honcho ships no types
    """A process with a session of its own, of which nothing is left when the process has ended.

    Children that lived on would hold ports, and the pipe whose end tells honcho that the part is over.
    """

    def __init__(self, command: str, **options: Any) -> None:
        super().__init__(command, **options)
        threading.Thread(target=self.wait, name="sweep", daemon=True).start()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process, then kill whoever is left in its group, then reap it."""
        # Until it is reaped, the dead process keeps its number, so the group cannot be somebody else's.
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            MainProcessFirst().kill(self.pid)
        return int(super().wait(timeout))

    def on_orphaned(self, *_signal: object) -> None:
        """Ask the process to end, and be patient for a while."""
        MainProcessFirst().terminate(self.pid)
        signal.alarm(ORPHAN_SECONDS)

    def on_patience_over(self, *_signal: object) -> None:
        """Kill it."""
        MainProcessFirst().kill(self.pid)


class MainProcessFirst:
    """Signals for parts: the request to end goes to the main process alone, force to its whole group."""

    def terminate(self, pid: int) -> None:
        """Ask the process to end; its children are its own affair."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)

    def kill(self, pid: int) -> None:
        """Kill the process and all of its group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


class PartLog(Printer):  # type: ignore[misc]  # honcho ships no types
    """Keeps the last lines of every part; prints them too once it is told to relay."""

    def __init__(self, output: TextIO) -> None:
        super().__init__(output)
        self.relaying = False
        self._lines: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=KEPT_LINES))
        self._lock = threading.Lock()

    def write(self, message: Message) -> None:
        """Take one line of a part, or of honcho about them."""
        if message.name == SYSTEM_PRINTER_NAME:
            return
        line = message.data.decode("utf-8", "replace").rstrip()
        with self._lock:
            self._lines[message.name].append(line)
        if self.relaying:
            try:
                super().write(message)
            except OSError:
                # Whoever read our output is gone; the parts must not die of that.
                self.relaying = False

    def last_lines(self, part: str) -> tuple[str, ...]:
        """The end of what a part printed, oldest first."""
        with self._lock:
            return tuple(self._lines[part])


@contextlib.contextmanager
def stop_signals_held() -> Iterator[None]:
    """Put stop signals off, so that none meets a forked go-between before it has handlers of its own."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _do_nothing(_number: int, _frame: object) -> None:
    """Handle a signal by not minding it."""
