"""What can be asked of the ledger: one :class:`Command` a Lua script, and what its reply means.

``tidegate/ledger.py`` carries commands out, blocking for workers and on asyncio for the API; what a command
says and how its reply is read is written once, here. Every command may be repeated when its reply was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import orjson

from tidegate.errors import TidegateError, WorkerLost
from tidegate.jobs import NewJob, Priority, State
from tidegate.settings import Settings

T = TypeVar("T")

#: Most jobs of one kind that one sweep looks at, so that its script stays short; the rest is for the next one.
SWEEP_LIMIT = 1000


def error_document(error: TidegateError) -> dict[str, Any]:
    """An error as it stands in a job: ``{"code", "message", "retryable"}``."""
    return {"code": error.code, "message": str(error), "retryable": error.retryable}


@dataclass(frozen=True)
class Command(Generic[T]):
    """One change of the ledger: a script, its arguments after prefix and TTL, and the reading of its reply."""

    script: str
    arguments: Sequence[str | bytes | int | float]
    parse: Callable[[Any], T]


@dataclass(frozen=True)
class Ticket:
    """What a Celery message about a job says.

    Attributes:
        issued_ms: when, by Redis's clock; the sweeper compares it with the job's place in the queue.
        deadline_ms: when the job expires, or None.
    """

    job_id: str
    model: str
    priority: Priority
    issued_ms: int
    deadline_ms: int | None = None

    @classmethod
    def parse(cls, reply: Sequence[bytes]) -> Ticket:
        """Read ``{id, model, priority, issued_ms, deadline_ms or ''}``."""
        job_id, model, priority, issued_ms, deadline_ms = (part.decode() for part in reply)
        return cls(job_id, model, Priority(priority), int(issued_ms), int(deadline_ms) if deadline_ms else None)


@dataclass(frozen=True)
class Admission:
    """What became of a job at the door.

    Attributes:
        ticket: to be issued, when it was accepted; None when the queue was full.
        full_of: ``jobs`` or ``bytes``, when it was refused.
        depth: how many jobs of its model wait, when it was refused.
        drain_rate: how many jobs of its model end a second, when it was refused.
    """

    ticket: Ticket | None
    full_of: str = ""
    depth: int = 0
    drain_rate: float = 0.0


@dataclass(frozen=True)
class ClaimedJob:
    """A job that this worker now holds the lease of.

    Attributes:
        attempts: this one included.
        pauses: how often it was put off before.
        remaining_ms: until its deadline, at the time of the claim; None when it has none.
        image: encoded, as uploaded.
    """

    id: str
    version: str | None
    options: dict[str, Any]
    attempts: int
    pauses: int
    remaining_ms: int | None
    image: bytes


@dataclass(frozen=True)
class Refusal:
    """Why a job could not be claimed.

    Attributes:
        reason: a terminal state, or ``suspect``, ``waiting``, ``running``, ``unknown`` (see ``lua/claim.lua``).
    """

    id: str
    reason: str


@dataclass(frozen=True)
class Outcome:
    """How a run ended a job: with a result, or with an error.

    Attributes:
        run: of the batch: ``{"batch_id", "batch_size", "model_version", "preprocess_ms", "infer_ms"}``.
    """

    job_id: str
    result: Sequence[Mapping[str, Any]] | None
    error: TidegateError | None
    run: dict[str, Any]


@dataclass(frozen=True)
class Return:
    """A job that is given back without an end.

    Attributes:
        delay_ms: how long it must rest; 0 puts it back into the queue at once.
        refund: this run does not count as an attempt.
        error: why, shown in the job while it waits.
    """

    job_id: str
    delay_ms: int = 0
    refund: bool = False
    error: TidegateError | None = None


@dataclass(frozen=True)
class Returned:
    """What became of a job that was given back or lost.

    Attributes:
        state: ``queued``, ``deferred``, or what it is instead.
        ticket: to be issued, when it is queued.
    """

    state: str
    ticket: Ticket | None


@dataclass(frozen=True)
class Swept:
    """What a sweep found. ``ran`` is False when another worker was at it."""

    ran: bool
    expired: int = 0
    lost: int = 0
    due: int = 0
    reticketed: int = 0
    more: bool = False
    tickets: tuple[Ticket, ...] = ()


def _parse_returned(replies: list[list[bytes]]) -> list[Returned]:
    return [Returned(reply[0].decode(), Ticket.parse(reply[1:]) if len(reply) > 1 else None) for reply in replies]


class Commands:
    """The vocabulary of the ledger, under the limits and times of the settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.prefix = settings.key_prefix
        self._lost = orjson.dumps(
            error_document(WorkerLost("The process that ran this job died each time it was tried."))
        )

    @property
    def ended_channel(self) -> str:
        """Where the ids of ended jobs are published, separated by spaces."""
        return f"{self.prefix}ended"

    def accept(self, jobs: Sequence[NewJob]) -> Command[list[Admission]]:
        """Admit jobs, each wholly or not at all; in the order given."""
        arguments: list[str | bytes | int | float] = [
            self.settings.max_queued_jobs,
            self.settings.max_queued_bytes,
        ]
        for job in jobs:
            expires = job.expires_in_ms if job.expires_in_ms is not None else ""
            arguments += [
                job.id,
                job.model,
                job.version or "",
                job.priority,
                expires,
                job.options_json(),
                job.image,
            ]

        def parse(replies: list[list[Any]]) -> list[Admission]:
            return [_parse_admission(job, reply) for job, reply in zip(jobs, replies, strict=True)]

        return Command("accept", arguments, parse)

    def claim(
        self, owner: str, job_ids: Sequence[str], *, alone: bool = False
    ) -> Command[tuple[list[ClaimedJob], list[Refusal]]]:
        """Take up the jobs of a batch under the lease of ``owner``; suspects only when ``alone``."""
        lease_ms = round(self.settings.lease_seconds * 1000)

        def parse(replies: list[list[Any]]) -> tuple[list[ClaimedJob], list[Refusal]]:
            claimed, refused = [], []
            for job_id, reply in zip(job_ids, replies, strict=True):
                if reply[0] == b"claimed":
                    claimed.append(_parse_claimed(job_id, reply))
                else:
                    refused.append(Refusal(job_id, reply[0].decode()))
            return claimed, refused

        return Command("claim", [owner, lease_ms, "alone" if alone else "together", *job_ids], parse)

    def complete(self, owner: str, outcomes: Sequence[Outcome]) -> Command[list[str]]:
        """Write the outcomes of a batch; gives the state in which each job is now, or ``unknown``."""
        arguments: list[str | bytes | int | float] = [owner]
        for outcome in outcomes:
            if outcome.error is not None:
                state, document = State.FAILED, orjson.dumps(error_document(outcome.error))
            else:
                state, document = State.SUCCEEDED, orjson.dumps(outcome.result)
            arguments += [outcome.job_id, state, document, orjson.dumps(outcome.run)]
        return Command("complete", arguments, lambda replies: [reply.decode() for reply in replies])

    def release(self, owner: str, returns: Sequence[Return]) -> Command[list[Returned]]:
        """Give jobs back; those that are queued again want a ticket."""
        arguments: list[str | bytes | int | float] = [owner]
        for item in returns:
            document = orjson.dumps(error_document(item.error)) if item.error else b""
            arguments += [item.job_id, item.delay_ms, "refund" if item.refund else "spend", document]
        return Command("release", arguments, _parse_returned)

    def lose(self, owner: str, job_ids: Sequence[str]) -> Command[list[Returned]]:
        """Tell that the process that ran these jobs is dead; those that are queued again want a ticket."""
        return Command("lose", [owner, self.settings.max_attempts, self._lost, *job_ids], _parse_returned)

    def cancel(self, job_ids: Sequence[str]) -> Command[list[str]]:
        """End jobs on their clients' behalf: ``canceled``, ``expired``, ``finished`` or ``unknown`` for each."""
        return Command("cancel", list(job_ids), lambda replies: [reply.decode() for reply in replies])

    def renew(self, leases: Iterable[tuple[str, str]]) -> Command[int]:
        """Keep the leases of (owner, job id) pairs; gives how many were still theirs."""
        arguments: list[str | bytes | int | float] = [round(self.settings.lease_seconds * 1000)]
        for owner, job_id in leases:
            arguments += [owner, job_id]
        return Command("renew", arguments, int)

    def sweep(self, ticket_lists: Iterable[tuple[str, Sequence[str]]], *, lock: bool = True) -> Command[Swept]:
        """Find lapsed leases, due and expired jobs, and lost tickets.

        Args:
            ticket_lists: per model its name and the broker's list keys of its tickets, high, normal, low.
            lock: whether to leave it to whoever swept within the last period.
        """
        sweep_ms = round(self.settings.sweep_seconds * 1000)
        # A little less than the period, so that the same worker's next sweep does not find its own lock.
        lock_ms = round(sweep_ms * 0.9) if lock else 0
        arguments: list[str | bytes | int | float] = [
            lock_ms, sweep_ms, self.settings.max_attempts, self._lost, SWEEP_LIMIT
        ]  # fmt: skip
        for model, lists in ticket_lists:
            arguments += [model, *lists]
        return Command("sweep", arguments, _parse_swept)


def _parse_admission(job: NewJob, reply: list[Any]) -> Admission:
    if reply[0] == b"accepted":
        deadline_ms = int(reply[2]) if reply[2] else None
        return Admission(Ticket(job.id, job.model, job.priority, int(reply[1]), deadline_ms))
    return Admission(None, reply[1].decode(), int(reply[2]), float(reply[3]))


def _parse_claimed(job_id: str, reply: list[Any]) -> ClaimedJob:
    _, version, options, attempts, pauses, deadline_ms, now_ms, image = reply
    return ClaimedJob(
        id=job_id,
        version=version.decode() or None,
        options=orjson.loads(options) if options else {},
        attempts=int(attempts),
        pauses=int(pauses),
        remaining_ms=int(deadline_ms) - int(now_ms) if deadline_ms else None,
        image=image,
    )


def _parse_swept(reply: list[Any]) -> Swept:
    if not reply:
        return Swept(ran=False)
    (expired, lost, due, reticketed, more), tickets = reply
    return Swept(True, expired, lost, due, reticketed, bool(more), tuple(Ticket.parse(ticket) for ticket in tickets))
