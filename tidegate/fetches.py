"""The commands about jobs whose image is fetched by its URL before they can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import orjson

from tidegate.commands import Command, Returned, Ticket, error_document
from tidegate.errors import TidegateError, WorkerLost
from tidegate.outgoing import FETCHES, Errand
from tidegate.settings import Settings

_LOST = orjson.dumps(error_document(WorkerLost("The process that fetched the image of this job died each time.")))


@dataclass(frozen=True)
class Fetch:
    """A job whose image this worker is to fetch.

    Attributes:
        lease: goes with everything that is told of it.
        url: as it was judged when the job was accepted.
    """

    job_id: str
    lease: str
    url: str


def start_fetch(errand: Errand, settings: Settings) -> Command[Fetch | None]:
    """Begin; None when there is nothing to do."""
    arguments: list[str | bytes | int] = [
        errand.id,
        errand.lease,
        FETCHES.lease_ms(settings),
        settings.max_attempts,
        _LOST,
    ]

    def parse(reply: Sequence[bytes]) -> Fetch | None:
        return Fetch(errand.id, reply[0].decode(), reply[1].decode()) if reply else None

    return Command("start_fetch", arguments, parse)


def add_piece(fetch: Fetch, offset: int, piece: bytes) -> Command[bool]:
    """Add the bytes that follow the first ``offset``; False when the job is over, so that the rest is not wanted."""
    return Command("piece", [fetch.job_id, fetch.lease, offset, piece], bool)


def end_fetch(
    fetch: Fetch, *, host_works: bool, error: TidegateError | None = None, again_ms: int | None = None
) -> Command[Returned]:
    """The image is there; or an error ends the job; or it is fetched once more after a while.

    The state is ``queued`` with a ticket to be issued, ``fetching``, or what the job is instead.
    """
    document = orjson.dumps(error_document(error)) if error else b""
    again = again_ms if again_ms is not None else ""
    arguments: list[str | bytes | int] = [
        fetch.job_id,
        fetch.lease,
        "works" if host_works else "fails",
        document,
        again,
    ]

    def parse(reply: Sequence[bytes]) -> Returned:
        return Returned(reply[0].decode(), Ticket.parse(reply[1:]) if len(reply) > 1 else None)

    return Command("fetched", arguments, parse)
