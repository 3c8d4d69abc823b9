"""How long a request may spend on Redis before its client is told to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidegate.errors import StoreUnavailable
from tidegate.settings import Settings

#: What a request may need beyond one answer of Redis.
SLACK_SECONDS = 0.5


@asynccontextmanager
async def store_deadline(settings: Settings) -> AsyncIterator[None]:
    """Bounds all that a request does with Redis: its wait for a connection, and every round trip.

    Raises:
        StoreUnavailable: it took too long.
    """
    try:
        async with asyncio.timeout(settings.redis_timeout_seconds + SLACK_SECONDS):
            yield
    except TimeoutError as error:
        raise StoreUnavailable("Redis did not answer in time.", retry_after_seconds=2) from error
