"""A job: its states, what may follow what, and its record as the ledger keeps it.

The table below is the state machine. The Lua scripts of the ledger follow it, and a test walks every
pair of state and event against a real Redis.
"""

from __future__ import annotations

import enum
import os
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson

from tidegate.regions import Box


class State(enum.StrEnum):
    """Where a job stands."""

    QUEUED = "queued"
    """It waits for a worker, or (deferred) for the time at which it may be tried again."""
    RUNNING = "running"
    """A worker holds a lease on it."""
    SUCCEEDED = "succeeded"
    """It has a result."""
    FAILED = "failed"
    """It has an error, and will not be tried again."""
    CANCELED = "canceled"
    """Its client no longer wants it."""
    EXPIRED = "expired"
    """Its deadline passed before it had a result."""

    @property
    def terminal(self) -> bool:
        """Whether nothing can change it any more."""
        return self not in (State.QUEUED, State.RUNNING)


class Event(enum.StrEnum):
    """What can happen to a job."""

    CLAIM = "claim"
    """A worker takes it up."""
    SUCCEED = "succeed"
    """A worker brings a result."""
    FAIL = "fail"
    """A worker brings an error that is final."""
    RETRY = "retry"
    """A worker gives it back, to be tried now or later."""
    LOSE = "lose"
    """The process that ran it died, or its lease ran out, with attempts left."""
    LOSE_LAST = "lose_last"
    """The same, at its last attempt."""
    CANCEL = "cancel"
    """Its client asks for its end."""
    EXPIRE = "expire"
    """Its deadline passes."""
    MISS = "miss"
    """Its image could not be fetched; that can only happen before it has one."""


#: What follows what; an event that is not listed for a state changes nothing.
#: A late answer of a worker that lost its lease still counts while the job has not ended: the work is done.
TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.QUEUED, Event.CLAIM): State.RUNNING,
    (State.QUEUED, Event.SUCCEED): State.SUCCEEDED,
    (State.QUEUED, Event.CANCEL): State.CANCELED,
    (State.QUEUED, Event.EXPIRE): State.EXPIRED,
    (State.QUEUED, Event.MISS): State.FAILED,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.RETRY): State.QUEUED,
    (State.RUNNING, Event.LOSE): State.QUEUED,
    (State.RUNNING, Event.LOSE_LAST): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELED,
    (State.RUNNING, Event.EXPIRE): State.EXPIRED,
}


#: The queues of each model, between which workers take turns; ``lua/tenants.lua`` gives tenants theirs.
LANES = 8


class Priority(enum.StrEnum):
    """Our words for it; ``tidegate/tickets.py`` alone knows Celery's numbers."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


_making_id = threading.Lock()
_last_id = 0


def new_job_id() -> str:
    """A UUIDv7: unique, and sorted by time of making, in one process also within a millisecond.

    Source: RFC 9562, sections 5.7 and 6.2, method 2.
    """
    global _last_id  # noqa: PLW0603 - what is made in this process is in order
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    value = (milliseconds & 0xFFFFFFFFFFFF) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    with _making_id:
        if value <= _last_id:
            value = _last_id + 1 + (random & 0xFFFFFFFF)
        _last_id = value
    digits = f"{value:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_job_id(text: str) -> bool:
    """Whether ``text`` is written as an id of ours would be, so that it may be part of a key."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


@dataclass(frozen=True)
class Destination:
    """A URL that a client named, as ``tidegate/outbound`` has judged it.

    Attributes:
        url: in its usual spelling.
        host: host and port, by which requests share limits.
    """

    url: str
    host: str


@dataclass(frozen=True)
class Webhook:
    """Whom to tell of a job's end.

    Attributes:
        to: where it is sent.
        path: of the job, as its client was told it; stands in the job that is sent.
        events: the ends that are told; all where there are none.
        client: whose secret signs it.
    """

    to: Destination
    path: str
    events: frozenset[State] = frozenset()
    client: str = ""

    def as_json(self) -> bytes:
        """As it stands in the job's record, where ``lua/outbox.lua`` reads it."""
        fields: dict[str, Any] = {"url": self.to.url, "host": self.to.host, "path": self.path}
        if self.events:
            fields["events"] = sorted(self.events)
        if self.client:
            fields["client"] = self.client
        return orjson.dumps(fields)


@dataclass(frozen=True)
class Idempotency:
    """What tells a repeated request from a new one.

    Attributes:
        key_digest: of the key that the client made up.
        fingerprint: of all that it asked for.
    """

    key_digest: str
    fingerprint: str


@dataclass(frozen=True)
class NewJob:
    """A job as it is handed to the ledger.

    Attributes:
        id: from :func:`new_job_id`.
        model: name of the model.
        image: the encoded image, as uploaded; empty where it is fetched.
        image_at: where it is fetched from before the job can run.
        version: the version of the model that must answer; None for the newest.
        top_k: how many classes the answer names.
        regions: boxes of the upright image that are classified each on its own; None for the image as a whole.
        priority: which of the model's queues it waits in.
        expires_in_ms: how long it may take from now, in milliseconds; None for ever.
        metadata: given back with the job.
        webhook: whom to tell of its end.
        tenant: whose it is; empty where there are no keys.
        idempotency: set where a repeated request must not make another job.
        answer_key: equal for jobs of one tenant that must have the same answer, where answers are shared.
    """

    id: str
    model: str
    image: bytes = b""
    image_at: Destination | None = None
    version: str | None = None
    top_k: int = 5
    regions: tuple[Box, ...] | None = None
    priority: Priority = Priority.NORMAL
    expires_in_ms: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    webhook: Webhook | None = None
    tenant: str = ""
    idempotency: Idempotency | None = None
    answer_key: str = ""

    def options_json(self) -> bytes:
        """What the worker and the answer need of it beside the image, as JSON; defaults are left out."""
        options: dict[str, Any] = {}
        if self.top_k != NewJob.top_k:
            options["top_k"] = self.top_k
        if self.regions is not None:
            options["regions"] = self.regions
        if self.metadata:
            options["metadata"] = self.metadata
        return orjson.dumps(options) if options else b""


@dataclass(frozen=True)
class JobRecord:
    """A job as it stands in the ledger. Times are milliseconds since the epoch, by Redis's clock.

    Attributes:
        result: the predictions, once it succeeded; with regions, ``{"box", "predictions"}`` for each.
        error: ``{"code", "message", "retryable"}``, once it failed, or of the last try while it waits.
        run: of the batch that ended it: ``{"batch_id", "batch_size", "model_version", "preprocess_ms", "infer_ms"}``.
        position: how many jobs of its model go before it while it waits; None when it does not.
        suspect: it may have killed its process or failed its batch, and runs alone.
        requeued_as: the job that ran it again, once an operator asked for that.
        requeue_of: the failed job that this one runs again.
        tenant: whose it is; empty where there are no keys.
        cached: it has the answer to an equal job, and did not run.
        start_in_ms: when it is likely to start, from the time of reading, while it waits; None where that is not known.
    """

    id: str
    model: str
    state: State
    created_ms: int
    version: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    started_ms: int | None = None
    finished_ms: int | None = None
    deadline_ms: int | None = None
    attempts: int = 0
    result: list[dict[str, Any]] | None = None
    error: dict[str, Any] | None = None
    run: dict[str, Any] = field(default_factory=dict)
    position: int | None = None
    suspect: bool = False
    requeued_as: str | None = None
    requeue_of: str | None = None
    tenant: str = ""
    cached: bool = False
    start_in_ms: int | None = None

    @classmethod
    def from_hash(cls, job_id: str, fields: dict[str, bytes]) -> JobRecord:
        """Read the hash ``job:{id}``."""

        def number(name: str) -> int | None:
            return int(fields[name]) if fields.get(name) else None

        def document(name: str) -> Any:
            return orjson.loads(fields[name]) if fields.get(name) else None

        state = State(fields["state"].decode())
        return cls(
            id=job_id,
            model=fields["model"].decode(),
            state=state,
            created_ms=int(fields["created_ms"]),
            version=fields.get("version", b"").decode() or None,
            options=document("options") or {},
            started_ms=number("started_ms"),
            finished_ms=number("finished_ms"),
            deadline_ms=number("deadline_ms"),
            attempts=number("attempts") or 0,
            result=document("result"),
            error=document("error"),
            run=document("run") or {},
            suspect="suspect" in fields,
            requeued_as=fields.get("requeued_as", b"").decode() or None,
            requeue_of=fields.get("requeue_of", b"").decode() or None,
            tenant=fields.get("tenant", b"").decode(),
            cached="cached" in fields,
        )
