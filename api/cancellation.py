"""Ending a task for sure."""

from __future__ import annotations

import asyncio
from typing import Any

#: How long a task may take to notice before it is told again.
AGAIN_SECONDS = 0.1


async def end_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended; what came of it is dropped.

    Once may not be enough: ``asyncio.wait_for`` of Python 3.11, through which redis-py sends, swallows a
    cancellation that comes at the moment at which its own work is done.
    Source: https://github.com/python/cpython/issues/86296
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=AGAIN_SECONDS)
    if not task.cancelled():
        task.exception()
