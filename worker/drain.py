"""How long a worker that was told to stop waits for its batches, and what ends the waiting early.

The pool waits in Celery's own way, for its children to end. Beside it a thread watches the time; when the grace is
over, or a second signal says that there is no time, it has the pool give up what still runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from celery.signals import worker_shutting_down

log = structlog.get_logger(__name__)

#: How often the time is looked at, in seconds.
LOOK_SECONDS = 0.1


class Drain:
    """The end of one worker's life.

    Args:
        grace_seconds: how long batches may run on.
        give_up: gives back what runs; called in a thread of the drain's own, at most once.
    """

    def __init__(self, grace_seconds: float, *, give_up: Callable[[], None]) -> None:
        self._grace_seconds = grace_seconds
        self._give_up = give_up
        self._signals = 0
        self._ends: float | None = None
        worker_shutting_down.connect(self._on_signal)

    @property
    def begun(self) -> bool:
        """Whether the worker is about to end, so that nothing new may be begun."""
        return self._ends is not None

    def begin(self, *, at_once: bool = False) -> None:
        """Count the grace from now on, unless that was begun before; or end it."""
        if self._ends is None or at_once:
            self._ends = time.monotonic() + (0.0 if at_once else self._grace_seconds)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Give up when the time is over, unless the block has ended by then."""
        drained = threading.Event()
        watch = threading.Thread(target=self._watch, args=(drained,), name="drain", daemon=True)
        watch.start()
        try:
            yield
        finally:
            drained.set()
            watch.join()

    def _watch(self, drained: threading.Event) -> None:
        while not drained.wait(LOOK_SECONDS):
            if self._signals > 1 or time.monotonic() >= (self._ends or 0.0):
                log.warning("drain.over", asked_again=self._signals > 1)
                self._give_up()
                return

    def _on_signal(self, **_signal: Any) -> None:
        # Runs in the handler of the signal, so it only counts.
        self._signals += 1
