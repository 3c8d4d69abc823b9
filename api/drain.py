"""The end of an API process: readiness fails first, then the server stops, and nobody is cut off meanwhile.

A load balancer needs a moment to see that a replica is leaving. So the first SIGTERM is held back from the server for
that long; requests are answered all along. A second one goes through at once.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import structlog

log = structlog.get_logger(__name__)


class Drain:
    """Whether this process has been told to stop.

    Args:
        seconds: for which the server goes on as before.
        then: called once, when it is told.
    """

    def __init__(self, seconds: float, *, then: Callable[[], None]) -> None:
        self._seconds = seconds
        self._then = then
        self._begun = False

    @property
    def begun(self) -> bool:
        """Nothing new should be sent here any more."""
        return self._begun

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Stand between SIGTERM and the server, which must have set its own handler before."""
        served = signal.getsignal(signal.SIGTERM)
        if not callable(served) or threading.current_thread() is not threading.main_thread():
            # No server's process: a test's, say.
            yield
            return
        loop = asyncio.get_running_loop()

        def on_signal(number: int, frame: FrameType | None) -> None:
            if self._begun:
                served(number, frame)
                return
            self._begun = True
            loop.call_soon_threadsafe(self._begin, loop, served)

        signal.signal(signal.SIGTERM, on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, served)

    def _begin(self, loop: asyncio.AbstractEventLoop, served: Callable[[int, FrameType | None], object]) -> None:
        log.info("api.draining", seconds=self._seconds)
        self._then()
        loop.call_later(self._seconds, served, signal.SIGTERM, None)
