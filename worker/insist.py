"""Writing down what is done, also while Redis is away for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tidegate.errors import StoreUnavailable

T = TypeVar("T")

#: How often finished work is offered to a Redis that does not take it, and the pause between, in seconds.
WRITE_TRIES = 5
WRITE_PAUSE_SECONDS = 0.5


def insist(write: Callable[[], T]) -> T:
    """Try a write again: the work of a whole batch or request hangs on it.

    Raises:
        StoreUnavailable: Redis did not come back.
    """
    for _ in range(WRITE_TRIES - 1):
        try:
            return write()
        except StoreUnavailable:
            time.sleep(WRITE_PAUSE_SECONDS)
    return write()
