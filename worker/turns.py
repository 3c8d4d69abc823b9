"""Turns between the priorities of a queue, so that a stream of urgent jobs does not hold up the others for ever.

Most pops take the most urgent ticket. Every sixteenth of a queue takes the one that was issued first, whatever its
priority. So nobody waits for more than sixteen times as many batches as without priorities, the urgent lose a sixteenth
at most, and nobody is ever served earlier for having asked for less. Used by ``worker/transport.py``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import orjson

#: Every so many pops of a queue one is for the oldest ticket.
ROUND = 16


def issued_ms(message: bytes) -> int | None:
    """When a ticket was issued, by Redis's clock; None for a message that does not tell."""
    try:
        issued = orjson.loads(message)["headers"]["issued_ms"]
    except (ValueError, TypeError, KeyError):
        return None
    return issued if isinstance(issued, int) else None


class PriorityTurns:
    """In which order the next pop of each queue looks at its priorities.

    Args:
        steps: the priorities as the broker knows them, the most urgent first.
    """

    def __init__(self, steps: Sequence[int]) -> None:
        self._steps = tuple(steps)
        self._pops: Counter[str] = Counter()
        self._first: dict[str, int] = {}

    def order(self, queue: str) -> Sequence[int]:
        """The priorities, in the order in which the next pop looks at them."""
        first = self._first.get(queue)
        return self._steps if first is None else sorted(self._steps, key=lambda step: step != first)

    def popped(self, queue: str) -> bool:
        """A pop brought something of the queue; tells whether the next one is for the oldest ticket.

        Then :meth:`choose` wants to be told what waits.
        """
        self._first.pop(queue, None)
        self._pops[queue] = (self._pops[queue] + 1) % ROUND
        return self._pops[queue] == 0

    def choose(self, queue: str, heads: Mapping[int, bytes | None]) -> None:
        """Have the next pop begin with the priority whose next ticket is the oldest.

        Args:
            queue: that it is about.
            heads: the message that is popped next, by priority; None where there is none.
        """
        issued = {step: issued_ms(message) for step, message in heads.items() if message is not None}
        known = [(when, step) for step, when in issued.items() if when is not None]
        if known:
            self._first[queue] = min(known)[1]
