"""What can be asked of the ledger: one :class:`Command` a Lua script, and what its reply means.

``tidegate/ledger.py`` carries commands out, blocking for workers and on asyncio for the API; what a command
says and how its reply is read is written once, here. Every command may be repeated when its reply was lost.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import orjson

from tidegate.errors import InternalError, RequestError, TidegateError, WorkerLost
from tidegate.jobs import NewJob, Priority, State
from tidegate.regions import Box
from tidegate.settings import Settings

T = TypeVar("T")

#: How long a request is remembered under its idempotency key: a day.
IDEMPOTENCY_SECONDS = 24 * 3600
#: Most jobs that one sweep looks at, so that its script stays short; the rest is for the next one.
SWEEP_LIMIT = 500


#: A sweep with nothing due costs Redis a fraction of a millisecond, so it may come often: a pause that is over, a
#: passed deadline and a lapsed lease are seen so soon. How long a ticket may be out is the setting's matter.
SWEEP_PACE_SECONDS = 1.0


def sweep_pace_seconds(settings: Settings) -> float:
    """How often to sweep, all workers together."""
    return min(settings.sweep_seconds, SWEEP_PACE_SECONDS)


def error_document(error: TidegateError) -> dict[str, Any]:
    """An error as it stands in a job: ``{"code", "message", "retryable"}``."""
    return {"code": error.code, "message": str(error), "retryable": error.retryable}


@dataclass(frozen=True)
class Command(Generic[T]):
    """One change of the ledger: a script, its arguments after prefix and retention, and the reading of its reply.

    Attributes:
        reads: keys whose values are read right after it; ``parse`` is then given ``[reply, values]``.
    """

    script: str
    arguments: Sequence[str | bytes | int | float]
    parse: Callable[[Any], T]
    reads: Sequence[str] = ()


class Ticket(NamedTuple):
    """What a Celery message about a job says. A tuple, as what else there is one of for every job of a batch.

    Attributes:
        issued_ms: when, by Redis's clock; the sweeper compares it with the job's place in the queue.
        deadline_ms: when the job expires, or None.
        lane: which of the model's queues it waits in; see ``lua/tenants.lua``.
    """

    job_id: str
    model: str
    priority: Priority
    issued_ms: int
    deadline_ms: int | None = None
    lane: int = 0

    @classmethod
    def parse(cls, reply: Sequence[bytes]) -> Ticket:
        """Read ``{id, model, priority, issued_ms, deadline_ms or '', lane}``."""
        job_id, model, priority, issued_ms, deadline_ms, lane = (part.decode() for part in reply)
        deadline = int(deadline_ms) if deadline_ms else None
        return cls(job_id, model, Priority(priority), int(issued_ms), deadline, int(lane))


class Verdict(enum.StrEnum):
    """What can become of a job at the door."""

    ACCEPTED = "accepted"
    ANSWERED = "answered"
    """It ended at once, with the answer to an equal job of its tenant."""
    REPLAYED = "replayed"
    """The same request came before under its idempotency key, and made a job."""
    REUSED = "reused"
    """Another request came before under its idempotency key."""
    QUEUE_FULL = "queue_full"
    OVER_QUOTA = "over_quota"
    """Its tenant has as many jobs open as it may."""
    TOO_LATE = "too_late"
    """At the present pace its answer would come after its deadline."""


class Admission(NamedTuple):
    """What became of a job at the door.

    Attributes:
        verdict: all else is told only where it applies.
        job_id: the job that stands for the request: the new one, or the one that is replayed.
        accepted_ms: when it was accepted, by Redis's clock; None when it was not.
        deadline_ms: when it expires, or None.
        ticket: to be issued; None when it was refused, or when its image is to be fetched first.
        full_of: which limit refused it: ``jobs`` or ``model_bytes`` of its model, ``all_jobs`` or ``bytes`` of all;
            or of its tenant, ``jobs`` or ``share``.
        depth: how many jobs wait that the limit is about, when it was refused.
        drain_rate: how many of those end a second, when it was refused.
        late_ms: how long after its deadline its answer would have come.
    """

    verdict: Verdict
    job_id: str
    accepted_ms: int | None = None
    deadline_ms: int | None = None
    ticket: Ticket | None = None
    full_of: str = ""
    depth: int = 0
    drain_rate: float = 0.0
    late_ms: int = 0


@dataclass(frozen=True)
class Place:
    """Where a waiting job stands.

    Attributes:
        position: how many jobs go before it.
        start_in_ms: until it is likely to start; None while the pace of its model is not known.
    """

    position: int
    start_in_ms: int | None


class ClaimedJob(NamedTuple):
    """A job that this worker now holds the lease of.

    Attributes:
        attempts: this one included.
        pauses: how often it was put off before.
        remaining_ms: until its deadline, at the time of the claim; None when it has none.
        absent_ms: for how long the version that it names has been missed, try after try; 0 when it was not.
        image: encoded, as uploaded; None when it is gone: the job has ended since, or its image was lost.
    """

    id: str
    version: str | None
    options: dict[str, Any]
    attempts: int
    pauses: int
    remaining_ms: int | None
    absent_ms: int
    image: bytes | None

    @property
    def regions(self) -> list[Box] | None:
        """The boxes that are to be classified each on its own; None for the image as a whole."""
        boxes = self.options.get("regions")
        return None if boxes is None else [(left, top, right, bottom) for left, top, right, bottom in boxes]


@dataclass(frozen=True)
class Refusal:
    """Why a job could not be claimed.

    Attributes:
        reason: a terminal state, or ``suspect``, ``waiting``, ``running``, ``unknown`` (see ``lua/claim.lua``).
    """

    id: str
    reason: str


class Outcome(NamedTuple):
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
        suspect: it may be the one of its batch that made it fail, and runs alone from now on; no refund.
    """

    job_id: str
    delay_ms: int = 0
    refund: bool = False
    error: TidegateError | None = None
    suspect: bool = False


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
class Requeued:
    """What became of a dead letter that was to be run again.

    Attributes:
        state: ``queued``; ``requeued``, when that was done before; ``gone``, when its image is not kept (any more);
            ``not_failed``, when there is nothing to run again; or ``unknown``.
        job_id: of the job that took over, when there is one.
        ticket: to be issued, when it is queued.
    """

    state: str
    job_id: str = ""
    ticket: Ticket | None = None

    @classmethod
    def parse(cls, reply: Sequence[bytes]) -> Requeued:
        """Read what ``lua/requeue.lua`` tells of one letter."""
        state, *rest = (part.decode() for part in reply)
        if state == State.QUEUED:
            return cls(state, rest[0], Ticket.parse(reply[1:]))
        return cls(state, rest[0] if rest else "")


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
        self._lease_ms = round(settings.lease_seconds * 1000)
        self._lost = WorkerLost("The process that ran this job died each time it was tried.")

    @property
    def ended_channel(self) -> str:
        """Where the ids of ended jobs are published, separated by spaces."""
        return f"{self.prefix}ended"

    @property
    def started_channel(self) -> str:
        """Where the ids of jobs that a worker has taken up are published, likewise."""
        return f"{self.prefix}started"

    def accept(self, jobs: Sequence[NewJob]) -> Command[list[Admission]]:
        """Admit jobs, each wholly or not at all; in the order given."""
        arguments: list[str | bytes | int | float] = [
            self.settings.max_queued_jobs,
            self.settings.max_all_jobs,
            self.settings.max_model_bytes,
            self.settings.max_queued_bytes,
            self.settings.key_open_jobs,
            IDEMPOTENCY_SECONDS * 1000,
        ]
        for job in jobs:
            arguments += [orjson.dumps(_asked_for(job)), job.image]

        def parse(replies: list[list[Any]]) -> list[Admission]:
            return [_parse_admission(job, reply) for job, reply in zip(jobs, replies, strict=True)]

        return Command("accept", arguments, parse)

    def places(self, job_ids: Sequence[str]) -> Command[list[Place | None]]:
        """Where jobs stand; None for those in no queue: running, over, put off, or unknown."""

        def parse(replies: list[list[Any]]) -> list[Place | None]:
            return [Place(reply[0], int(reply[1]) if reply[1] else None) if reply else None for reply in replies]

        return Command("place", list(job_ids), parse)

    def claim(
        self, owner: str, job_ids: Sequence[str], *, alone: bool = False
    ) -> Command[tuple[list[ClaimedJob], list[Refusal]]]:
        """Take up the jobs of a batch under the lease of ``owner``; suspects only when ``alone``."""

        def parse(results: tuple[list[list[Any]], list[bytes | None]]) -> tuple[list[ClaimedJob], list[Refusal]]:
            claimed, refused = [], []
            for job_id, reply, image in zip(job_ids, *results, strict=True):
                if reply[0] == b"claimed":
                    claimed.append(_parse_claimed(job_id, reply, image))
                else:
                    refused.append(Refusal(job_id, reply[0].decode()))
            return claimed, refused

        arguments = [owner, self._lease_ms, "alone" if alone else "together", *job_ids]
        return Command("claim", arguments, parse, reads=[f"{self.prefix}input:{job_id}" for job_id in job_ids])

    def complete(self, owner: str, outcomes: Sequence[Outcome]) -> Command[list[str]]:
        """Write the outcomes of a batch; gives the state in which each job is now, or ``unknown``."""
        arguments: list[str | bytes | int | float] = [owner]
        for outcome in outcomes:
            if outcome.error is not None:
                word = "failed" if isinstance(outcome.error, RequestError) else "dead"
                document = orjson.dumps(error_document(outcome.error))
            else:
                word, document = "succeeded", orjson.dumps(outcome.result)
            arguments += [outcome.job_id, word, document, orjson.dumps(outcome.run)]
        return Command("complete", arguments, lambda replies: [reply.decode() for reply in replies])

    def release(self, owner: str, returns: Sequence[Return]) -> Command[list[Returned]]:
        """Give jobs back; those that are queued again want a ticket."""
        arguments: list[str | bytes | int | float] = [owner]
        for item in returns:
            document = orjson.dumps(error_document(item.error)) if item.error else b""
            attempt = "suspect" if item.suspect else "refund" if item.refund else "spend"
            arguments += [item.job_id, item.delay_ms, attempt, document]
        return Command("release", arguments, _parse_returned)

    def lose(
        self, owner: str, job_ids: Sequence[str], *, error: InternalError | WorkerLost | None = None
    ) -> Command[list[Returned]]:
        """Tell that the run of these jobs came to nothing; those that are queued again want a ticket.

        Args:
            owner: of their leases.
            job_ids: of the whole batch.
            error: what those at their last attempt fail with; by default that their process died.
        """
        document = orjson.dumps(error_document(error or self._lost))
        return Command("lose", [owner, self.settings.max_attempts, document, *job_ids], _parse_returned)

    def cancel(self, job_ids: Sequence[str]) -> Command[list[str]]:
        """End jobs on their clients' behalf: ``canceled``, ``expired``, ``finished`` or ``unknown`` for each."""
        return Command("cancel", ["cancel", *job_ids], lambda replies: [reply.decode() for reply in replies])

    def expire(self, job_ids: Sequence[str]) -> Command[list[str]]:
        """End jobs that are overdue by Redis's clock: ``expired``, ``early``, ``finished`` or ``unknown`` for each."""
        return Command("cancel", ["expire", *job_ids], lambda replies: [reply.decode() for reply in replies])

    def reissue(self, job_ids: Sequence[str]) -> Command[list[Ticket]]:
        """New tickets for those of the jobs that wait in the queue."""
        return Command("reissue", list(job_ids), lambda replies: [Ticket.parse(reply) for reply in replies])

    def requeue(self, letters: Mapping[str, str]) -> Command[list[Requeued]]:
        """Run dead letters again, each as a new job.

        Args:
            letters: ids of the new jobs, by the ids of the failed ones.
        """
        arguments = [part for pair in letters.items() for part in pair]
        return Command("requeue", arguments, lambda replies: [Requeued.parse(reply) for reply in replies])

    def renew(self, leases: Iterable[tuple[str, str]]) -> Command[int]:
        """Keep the leases of (owner, job id) pairs; gives how many were still theirs."""
        arguments: list[str | bytes | int | float] = [self._lease_ms]
        for owner, job_id in leases:
            arguments += [owner, job_id]
        return Command("renew", arguments, int)

    def sweep(self, ticket_lists: Iterable[tuple[str, Sequence[str]]], *, lock: bool = True) -> Command[Swept]:
        """Find lapsed leases, due and expired jobs, and lost tickets.

        Args:
            ticket_lists: per model its name and the broker's list keys of its tickets: high, normal, low of each lane.
            lock: whether to leave it to whoever swept within the last :func:`sweep_pace_seconds`.
        """
        grace_ms = round(self.settings.sweep_seconds * 1000)
        # A little less than the pace, so that the same worker's next sweep does not find its own lock.
        lock_ms = round(sweep_pace_seconds(self.settings) * 900) if lock else 0
        lost = orjson.dumps(error_document(self._lost))
        arguments: list[str | bytes | int | float] = [
            lock_ms, grace_ms, self._lease_ms, self.settings.max_attempts, lost, SWEEP_LIMIT
        ]  # fmt: skip
        for model, lists in ticket_lists:
            arguments += [model, len(lists), *lists]
        return Command("sweep", arguments, _parse_swept)


def _asked_for(job: NewJob) -> dict[str, Any]:
    """A job as ``lua/accept.lua`` reads it: an argument each would cost more on the way, and most fields are rare."""
    fields: dict[str, Any] = {"id": job.id, "model": job.model, "priority": job.priority}
    if job.version is not None:
        fields["version"] = job.version
    if job.expires_in_ms is not None:
        fields["expires_in"] = job.expires_in_ms
    if options := job.options_json():
        fields["options"] = options.decode()
    if job.webhook is not None:
        fields["webhook"] = job.webhook.as_json().decode()
    if job.image_at is not None:
        fields |= {"url": job.image_at.url, "host": job.image_at.host}
    if job.tenant:
        fields["tenant"] = job.tenant
    if job.idempotency is not None:
        fields |= {"idempotency": job.idempotency.key_digest, "fingerprint": job.idempotency.fingerprint}
    if job.answer_key:
        fields["same"] = job.answer_key
    return fields


def _parse_admission(job: NewJob, reply: list[Any]) -> Admission:
    verdict = Verdict(reply[0].decode())
    match verdict:
        case Verdict.ACCEPTED:
            accepted_ms, deadline_ms = int(reply[1]), int(reply[2]) if reply[2] else None
            ticket = Ticket(job.id, job.model, job.priority, accepted_ms, deadline_ms, int(reply[3]))
            return Admission(verdict, job.id, accepted_ms, deadline_ms, None if job.image_at else ticket)
        case Verdict.REPLAYED:
            return Admission(verdict, reply[1].decode())
        case Verdict.QUEUE_FULL | Verdict.OVER_QUOTA:
            full_of, depth, drain_rate = reply[1].decode(), int(reply[2]), float(reply[3])
            return Admission(verdict, job.id, full_of=full_of, depth=depth, drain_rate=drain_rate)
        case Verdict.TOO_LATE:
            return Admission(verdict, job.id, late_ms=int(reply[1]))
        case _:
            return Admission(verdict, job.id)


def _parse_claimed(job_id: str, reply: list[Any], image: bytes | None) -> ClaimedJob:
    _, version, options, attempts, pauses, deadline_ms, now_ms, absent_ms = reply
    return ClaimedJob(
        id=job_id,
        version=version.decode() or None,
        options=orjson.loads(options) if options else {},
        attempts=int(attempts),
        pauses=int(pauses),
        remaining_ms=int(deadline_ms) - int(now_ms) if deadline_ms else None,
        absent_ms=int(now_ms) - int(absent_ms) if absent_ms else 0,
        image=image,
    )


def _parse_swept(reply: list[Any]) -> Swept:
    if not reply:
        return Swept(ran=False)
    (expired, lost, due, reticketed, more), tickets = reply
    return Swept(True, expired, lost, due, reticketed, bool(more), tuple(Ticket.parse(ticket) for ticket in tickets))
