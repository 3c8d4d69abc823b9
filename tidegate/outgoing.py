"""What waits to go out to hosts that clients named, and who may go next: a line for each host, fair to all.

There are two kinds of it: webhooks, and jobs whose image is still to be fetched. Both are leased out by
``lua/take.lua`` to workers with threads (``worker/dispatcher.py``), as ordinary Celery messages with nothing in them
but an id and a lease.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.commands import Command
from tidegate.settings import Settings

#: How long a message may wait for a thread beside two full attempts of those before it, in seconds.
TICKET_SLACK_SECONDS = 10.0
#: How long a worker may take beside the limit of the request itself, to claim and to write what became of it.
ATTEMPT_SLACK_SECONDS = 5.0


@dataclass(frozen=True)
class Outgoing:
    """One kind of work that goes out.

    Attributes:
        lines: what its keys begin with, after the prefix.
        queue: the Celery queue of its messages, and the broker's list.
        task: the Celery task.
    """

    lines: str
    queue: str
    task: str

    def attempt_seconds(self, settings: Settings) -> float:
        """Longest that one attempt may take, from the first packet to the last."""
        return settings.webhook_timeout_seconds if self is WEBHOOKS else settings.fetch_timeout_seconds

    def lease_ms(self, settings: Settings) -> int:
        """How long an attempt is the worker's own once it has begun."""
        return round((self.attempt_seconds(settings) + ATTEMPT_SLACK_SECONDS) * 1000)


WEBHOOKS = Outgoing("outbox", "webhooks", "tidegate.deliver")
FETCHES = Outgoing("fetches", "fetch", "tidegate.fetch")


@dataclass(frozen=True)
class Errand:
    """One thing that may go out now.

    Attributes:
        id: of a delivery, or of a job.
        lease: tells this errand from an earlier or later one for the same thing.
    """

    id: str
    lease: str


@dataclass(frozen=True)
class Taken:
    """What may go out now.

    Attributes:
        errands: each is leased for as long as a message about it may wait.
        next_seconds: when there will be more, if nothing else happens; None when nothing waits.
        full: more may go, but there is no room for it.
    """

    errands: tuple[Errand, ...]
    next_seconds: float | None
    full: bool


def take(work: Outgoing, settings: Settings, *, room: int) -> Command[Taken]:
    """Lease out what goes next.

    Args:
        work: of which kind.
        settings: the limits per host.
        room: most messages that may wait in the broker, those that do now included.
    """
    ticket_ms = round((2 * work.attempt_seconds(settings) + TICKET_SLACK_SECONDS) * 1000)
    arguments: list[str | bytes | int | float] = [
        work.lines,
        room,
        # At least one, or no new host would ever be tried.
        max(1, room // 2),
        settings.outbound_host_connections,
        1000 / settings.outbound_host_rate,
        ticket_ms,
        work.queue,
        settings.max_queued_bytes if work is FETCHES else "",
    ]
    return Command("take", arguments, _parse_taken)


def _parse_taken(reply: Sequence[bytes | int]) -> Taken:
    now, next_look, full, *pairs = (part.decode() if isinstance(part, bytes) else part for part in reply)
    errands = tuple(Errand(str(pairs[i]), str(pairs[i + 1])) for i in range(0, len(pairs), 2))
    next_seconds = max(0.0, (float(next_look) - float(now)) / 1000) if next_look != "" else None
    return Taken(errands, next_seconds, bool(full))
