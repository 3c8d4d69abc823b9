"""A limit of time over all that a request does, in whichever layer it waits.

The layers below (httpcore, sockets) limit each read and write by itself, so an answer that drips would last for
ever; and a look-up not at all. The limit belongs to the thread that set it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tidegate.errors import UrlTimeout

_deadline: ContextVar[float] = ContextVar("outbound_deadline")


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Let everything inside that asks :func:`remaining` end within so many seconds."""
    token = _deadline.set(time.monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def remaining(at_most: float | None = None) -> float:
    """Seconds that the next wait may take.

    Raises:
        UrlTimeout: none are left.
        LookupError: no limit is set; a bug.
    """
    left = _deadline.get() - time.monotonic()
    if left <= 0:
        raise UrlTimeout("The host did not answer completely within the time limit.")
    return left if at_most is None else min(left, at_most)
