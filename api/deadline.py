"""How long a request may spend on something, Redis above all, before its client is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType

from api.cancellation import AGAIN_SECONDS
from tidegate.errors import StoreUnavailable, TidegateError
from tidegate.settings import Settings

#: What a request may need beyond one answer of Redis.
SLACK_SECONDS = 0.5


class Deadline:
    """Bounds all that a request does within the block, and raises what it is given when that took too long.

    Unlike ``asyncio.timeout`` it cancels the block again and again until that has ended: once may not be enough, see
    ``api/cancellation.py``.
    """

    __slots__ = ("_canceled_before", "_cancellations", "_late", "_seconds", "_task", "_timer")

    _task: asyncio.Task[object]
    _timer: asyncio.TimerHandle

    def __init__(self, seconds: float, late: Callable[[], TidegateError]) -> None:
        self._seconds = seconds
        self._late = late
        self._cancellations = 0

    async def __aenter__(self) -> None:
        """Start the clock."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None
        self._task = task
        self._canceled_before = task.cancelling()
        self._timer = loop.call_later(self._seconds, self._cancel, loop)

    def _cancel(self, loop: asyncio.AbstractEventLoop) -> None:
        self._cancellations += 1
        self._task.cancel()
        self._timer = loop.call_later(AGAIN_SECONDS, self._cancel, loop)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it; an end by the clock is told as such, unless somebody else wants the task to end as well."""
        self._timer.cancel()
        for _ in range(self._cancellations):
            self._task.uncancel()
        canceled_by_clock = self._cancellations > 0 and isinstance(error, asyncio.CancelledError)
        if canceled_by_clock and self._task.cancelling() <= self._canceled_before:
            raise self._late() from error


def store_deadline(settings: Settings) -> Deadline:
    """Bounds what a request does with Redis, its wait for a connection and every round trip: StoreUnavailable."""
    return Deadline(settings.redis_timeout_seconds + SLACK_SECONDS, _redis_is_late)


def _redis_is_late() -> TidegateError:
    return StoreUnavailable("Redis did not answer in time.", retry_after_seconds=2)
