"""How long a request may spend on Redis before its client is told to come back."""

from __future__ import annotations

import asyncio
from types import TracebackType

from tidegate.errors import StoreUnavailable
from tidegate.settings import Settings

#: What a request may need beyond one answer of Redis.
SLACK_SECONDS = 0.5


class StoreDeadline:
    """Bounds all that a request does with Redis within the block: its wait for a connection, and every round trip.

    It raises StoreUnavailable when that took too long.
    """

    __slots__ = ("_timeout",)

    def __init__(self, seconds: float) -> None:
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> None:
        """Start the clock."""
        await self._timeout.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stop it; an end by the clock is told as an outage."""
        try:
            await self._timeout.__aexit__(kind, error, traceback)
        except TimeoutError as late:
            raise StoreUnavailable("Redis did not answer in time.", retry_after_seconds=2) from late


def store_deadline(settings: Settings) -> StoreDeadline:
    """The deadline of one request, from now."""
    return StoreDeadline(settings.redis_timeout_seconds + SLACK_SECONDS)
