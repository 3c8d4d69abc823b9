"""Deliveries as the ledger keeps them, and the commands about them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.commands import Command
from tidegate.jobs import JobRecord, State, is_job_id
from tidegate.outgoing import WEBHOOKS, Errand
from tidegate.settings import Settings

#: The ends that a webhook can tell of.
EVENT_STATES = tuple(state for state in State if state.terminal)


class DeliveryState(enum.StrEnum):
    """Where a delivery stands."""

    PENDING = "pending"
    """It is being sent, or waits for its time."""
    DELIVERED = "delivered"
    """The receiver answered with a 2xx."""
    FAILED = "failed"
    """The receiver's answer says that another try is in vain."""
    DEAD = "dead"
    """It did not get through in the time for which it is tried."""
    DISABLED = "disabled"
    """The URL answered 410 earlier, so it was not sent."""


@dataclass(frozen=True)
class Delivery:
    """One delivery as it stands. Times are milliseconds since the epoch, by Redis's clock.

    Attributes:
        id: of the job and its end; what receivers get as ``webhook-id``.
        event: such as ``job.succeeded``.
        host: where it goes, without the rest of the URL, which may hold a secret of its receiver.
        status: of the last answer; None when there was none.
        note: the last answer's reason phrase, or why there was none.
        due_ms: when it is tried next; None when it is not.
        client: whose job it was.
    """

    id: str
    job_id: str
    event: str
    host: str
    state: DeliveryState
    created_ms: int
    attempts: int = 0
    last_ms: int | None = None
    due_ms: int | None = None
    status: int | None = None
    note: str = ""
    client: str = ""

    @classmethod
    def from_hash(cls, delivery_id: str, fields: dict[str, bytes]) -> Delivery:
        """Read the hash ``delivery:{id}``."""

        def number(name: str) -> int | None:
            return int(fields[name]) if fields.get(name) else None

        return cls(
            id=delivery_id,
            job_id=fields["job"].decode(),
            event=fields["event"].decode(),
            host=fields["host"].decode(),
            state=DeliveryState(fields["state"].decode()),
            created_ms=int(fields["created_ms"]),
            attempts=number("attempts") or 0,
            last_ms=number("last_ms"),
            due_ms=number("due_ms"),
            status=number("status"),
            note=fields.get("note", b"").decode(),
            client=fields.get("client", b"").decode(),
        )


@dataclass(frozen=True)
class Attempt:
    """A delivery that this worker is to try now.

    Attributes:
        lease: goes with the word of what became of it.
        url: where to.
        client: whose secret signs it.
        path: of the job, as its client knows it.
        attempts: this one included.
        age_ms: since its first was due.
        job: as it ended; None when that is no longer kept.
    """

    delivery_id: str
    lease: str
    url: str
    client: str
    path: str
    event: str
    attempts: int
    age_ms: int
    job: JobRecord | None


def delivery_id(job_id: str, state: State) -> str:
    """The id of the delivery that tells of a job's end: the same on every attempt, as ``lua/outbox.lua`` makes it."""
    return f"{job_id}-{state}"


def is_delivery_id(text: str) -> bool:
    """Whether ``text`` is written as an id of ours would be, so that it may be part of a key."""
    job_id, _, state = text.rpartition("-")
    return is_job_id(job_id) and state in EVENT_STATES


def start_delivery(errand: Errand, settings: Settings) -> Command[Attempt | None]:
    """Begin an attempt; None when there is nothing to do."""

    def parse(reply: Sequence[Any]) -> Attempt | None:
        return _parse_attempt(errand.id, reply) if reply else None

    return Command("start_delivery", [errand.id, errand.lease, WEBHOOKS.lease_ms(settings)], parse)


@dataclass(frozen=True)
class Report:
    """What became of an attempt, as it is written down.

    Attributes:
        state: of the delivery from now on; ``PENDING`` when it is tried again after ``delay_ms``.
        host_works: whether the host took it like one that works, so that others may follow.
        hold_ms: for how long the host asks to be left alone.
        gone: the URL is not to be called again for this client.
    """

    state: DeliveryState
    host_works: bool
    delay_ms: int = 0
    hold_ms: int = 0
    status: int | None = None
    note: str = ""
    gone: bool = False


def record(attempt: Attempt, report: Report) -> Command[str]:
    """Write it down; gives the state that the delivery is in now, or ``unknown``."""
    arguments: list[str | bytes | int | float] = [
        attempt.delivery_id,
        attempt.lease,
        report.state,
        report.delay_ms,
        "works" if report.host_works else "fails",
        report.hold_ms,
        report.status if report.status is not None else "",
        report.note,
        "gone" if report.gone else "",
    ]
    return Command("record", arguments, lambda reply: str(reply.decode()))


def redeliver(delivery_ids: Sequence[str]) -> Command[list[str]]:
    """Send them once more; ``pending`` for each, or ``unknown``."""
    return Command("redeliver", list(delivery_ids), lambda replies: [reply.decode() for reply in replies])


def _parse_attempt(delivery: str, reply: Sequence[Any]) -> Attempt:
    lease, url, client, path, job_id, event, attempts, age_ms, flat = reply
    fields = {flat[i].decode(): flat[i + 1] for i in range(0, len(flat), 2)}
    return Attempt(
        delivery_id=delivery,
        lease=lease.decode(),
        url=url.decode(),
        client=client.decode(),
        path=path.decode(),
        event=event.decode(),
        attempts=int(attempts),
        age_ms=int(age_ms),
        job=JobRecord.from_hash(job_id.decode(), fields) if fields else None,
    )
