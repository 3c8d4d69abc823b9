"""Runs the parts of the embedded stack beside a session, and ends them all, in order, whatever happens.

honcho starts the processes and brings their output together. Added here is what it does not promise: a signal
may come at any moment, also while the parts start; tiers end one after the other; only a part's main process is
asked to end, and gets its time (honcho asks the whole group, and a Celery worker whose children are killed
cannot drain); and no process survives its part's end, or the end of this process.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType

from honcho.manager import Manager

from tidegate.local.parts import Part, PartFailed, Tier
from tidegate.local.processes import (
    STOP_SIGNALS,
    MainProcessFirst,
    PartLog,
    PartProcess,
    stop_signals_held,
)

TICK_SECONDS = 0.05
START_SECONDS = 10.0
"""Far more than a fork and an exec take on a loaded machine."""
KILL_SECONDS = 5.0
"""Likewise for the end after a SIGKILL."""
IMPATIENCE_SECONDS = 1.0
"""A signal so long after the first means that somebody will not wait; before that it is the first one, sent twice."""


class SessionOver(Exception):
    """Raised out of :meth:`Supervisor.pause` to leave a session: a signal came, or a part died."""


class Supervisor(Manager):  # type: ignore[misc]  # honcho ships no types
    """One run of the stack.

    Attributes:
        stopped_by: the first signal that asked us to end; None while there was none.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._log = PartLog(sys.stdout)
        super().__init__(printer=self._log)
        self._process_ctor = PartProcess
        self._procmgr = MainProcessFirst()
        self._parts = tuple(parts)
        for part in parts:
            environ = {**os.environ, **part.environ, "PYTHONUNBUFFERED": "1"}
            self.add_process(part.name, shlex.join(part.command), env=environ, cwd=part.cwd)
        self.stopped_by: signal.Signals | None = None
        self._stopped_at = 0.0
        self._hurried = False
        self._over = False
        self._casualty: Part | None = None
        self._failure: BaseException | None = None

    def run(self, session: Callable[[], None]) -> None:
        """Start every part, run ``session`` in a thread beside them, and end them all when it is over.

        It is over when ``session`` returns or raises, when a signal comes (see ``stopped_by``), or when a part ends.
        Must be called in the main thread, once.

        Raises:
            PartFailed: a part ended that nobody had asked to, or ``session`` says that one failed.
            Exception: what ``session`` raised, unless a signal or the end of a part explains it.
        """
        self._conductor = threading.Thread(target=self._conduct, args=(session,), name="session")
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        try:
            self.loop()
        finally:
            self._over = True
            if self._conductor.ident:
                self._conductor.join()
            for part in self._parts:
                self._abandon(part)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        if self._casualty:
            self._failure = self._death_of(self._casualty)
        elif self.stopped_by:
            return
        if isinstance(self._failure, PartFailed):
            self._failure.last_lines = self.last_lines(self._failure.part)
        if self._failure:
            raise self._failure

    def pause(self, seconds: float) -> None:
        """Sleep, in a session.

        Raises:
            SessionOver: at once when the stack ends.
        """
        self._wait_for(lambda: self._ending, seconds)
        if self._ending:
            raise SessionOver

    def relay(self) -> None:
        """Print what the parts print, from now on."""
        self._log.relaying = True

    def pid(self, part: Part) -> int:
        """The process id of a part's main process, once the session runs."""
        return int(self._processes[part.name]["pid"])

    def last_lines(self, part: str) -> tuple[str, ...]:
        """The end of what a part printed, oldest first."""
        return self._log.last_lines(part)

    def terminate(self) -> None:
        """For honcho, which asks for it once a part has ended: note which, and leave the rest to the conductor."""
        if not self._ending:
            self._casualty = next(part for part in self._parts if not self._runs(part))

    def kill(self) -> None:
        """For honcho, which would kill what is left 5 s after the first end: the conductor keeps the graces."""

    def _start(self) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._on_signal)
        with stop_signals_held():
            super()._start()
        self._conductor.start()

    # honcho asks these three at each turn of its loop. A go-between that was killed reports no end of its part.

    def _all_started(self) -> bool:
        return all("pid" in self._processes[part.name] or not self._runs(part) for part in self._parts)

    def _any_stopped(self) -> bool:
        return not all(self._runs(part) for part in self._parts)

    def _all_stopped(self) -> bool:
        return not any(self._runs(part) for part in self._parts)

    def _runs(self, part: Part) -> bool:
        process = self._processes[part.name]
        return "returncode" not in process and process["process"].is_alive()

    @property
    def _ending(self) -> bool:
        return self._over or self.stopped_by is not None or self._casualty is not None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        # Plain attributes only: this may interrupt the main thread inside any lock.
        if self.stopped_by is None:
            self.stopped_by, self._stopped_at = signal.Signals(number), time.monotonic()
        elif time.monotonic() - self._stopped_at > IMPATIENCE_SECONDS:
            self._hurried = True

    def _conduct(self, session: Callable[[], None]) -> None:
        """Run the session, then the end; in a thread, as honcho's loop has the main one."""
        try:
            self._await_start()
            session()
        except SessionOver:
            pass
        except BaseException as error:  # noqa: BLE001 - run() raises it in the caller's thread
            self._failure = error
        finally:
            self._over = True
            for tier in Tier:
                self._end([part for part in self._parts if part.tier is tier])

    def _await_start(self) -> None:
        if not self._wait_for(self._all_started, START_SECONDS):
            raise TimeoutError(f"the parts could not be started within {START_SECONDS:g} s")

    def _end(self, parts: Sequence[Part]) -> None:
        """End the parts of one tier: by asking, and after their grace by force."""
        grace_seconds = max((part.grace_seconds for part in parts), default=0)
        self._signal(parts, self._procmgr.terminate)
        self._wait_for(lambda: self._hurried or not any(map(self._runs, parts)), grace_seconds)
        self._signal(parts, self._procmgr.kill)
        self._wait_for(lambda: not any(map(self._runs, parts)), KILL_SECONDS)
        for part in parts:
            self._abandon(part)

    def _signal(self, parts: Sequence[Part], send: Callable[[int], None]) -> None:
        for part in parts:
            if self._runs(part) and "pid" in self._processes[part.name]:
                send(self.pid(part))

    def _abandon(self, part: Part) -> None:
        """Kill a part's go-between: where nothing milder worked, or where the start broke off."""
        process = self._processes[part.name].get("process")
        if process is not None and process.is_alive():
            process.kill()

    def _death_of(self, part: Part) -> PartFailed:
        code = self._processes[part.name].get("returncode")
        if code is None:
            how = "was lost"
        elif code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        else:
            how = f"ended with exit code {code}"
        return PartFailed(part.name, f"{part.name} {how}", advice=part.advice)

    @staticmethod
    def _wait_for(condition: Callable[[], bool], seconds: float) -> bool:
        """Look again and again whether something is so; False when it is not by then."""
        until = time.monotonic() + seconds
        while not condition():
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(TICK_SECONDS, left))
        return True
