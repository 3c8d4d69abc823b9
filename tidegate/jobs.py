"""A job: its states, what may follow what, and its record as the ledger keeps it.

The table below is the state machine. The Lua scripts of the ledger follow it, and a test walks every
pair of state and event against a real Redis.
"""

from __future__ import annotations

import enum
import os
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

import orjson


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


#: What follows what; an event that is not listed for a state changes nothing.
#: A late answer of a worker that lost its lease still counts while the job has not ended: the work is done.
TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.QUEUED, Event.CLAIM): State.RUNNING,
    (State.QUEUED, Event.SUCCEED): State.SUCCEEDED,
    (State.QUEUED, Event.CANCEL): State.CANCELED,
    (State.QUEUED, Event.EXPIRE): State.EXPIRED,
    (State.RUNNING, Event.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Event.FAIL): State.FAILED,
    (State.RUNNING, Event.RETRY): State.QUEUED,
    (State.RUNNING, Event.LOSE): State.QUEUED,
    (State.RUNNING, Event.LOSE_LAST): State.FAILED,
    (State.RUNNING, Event.CANCEL): State.CANCELED,
    (State.RUNNING, Event.EXPIRE): State.EXPIRED,
}


class Priority(enum.StrEnum):
    """Our words for it; ``tidegate/tickets.py`` alone knows Celery's numbers."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


def new_job_id() -> str:
    """A UUIDv7: unique, and sorted by time of making.

    Source: RFC 9562, section 5.7.
    """
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    value = (milliseconds & 0xFFFFFFFFFFFF) << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))


def is_job_id(text: str) -> bool:
    """Whether ``text`` is written as an id of ours would be, so that it may be part of a key."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False


@dataclass(frozen=True)
class NewJob:
    """A job as it is handed to the ledger.

    Attributes:
        id: from :func:`new_job_id`.
        model: name of the model.
        image: the encoded image, as uploaded.
        version: the version of the model that must answer; None for the newest.
        top_k: how many classes the answer names.
        priority: which of the model's queues it waits in.
        expires_in_ms: how long it may take from now, in milliseconds; None for ever.
        metadata: given back with the job.
    """

    id: str
    model: str
    image: bytes
    version: str | None = None
    top_k: int = 5
    priority: Priority = Priority.NORMAL
    expires_in_ms: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)

    def options_json(self) -> bytes:
        """What the worker and the answer need of it beside the image, as JSON; defaults are left out."""
        options: dict[str, Any] = {}
        if self.top_k != NewJob.top_k:
            options["top_k"] = self.top_k
        if self.metadata:
            options["metadata"] = self.metadata
        return orjson.dumps(options) if options else b""


@dataclass(frozen=True)
class JobRecord:
    """A job as it stands in the ledger. Times are milliseconds since the epoch, by Redis's clock.

    Attributes:
        result: the predictions, once it succeeded.
        error: ``{"code", "message", "retryable"}``, once it failed, or of the last try while it waits.
        run: of the batch that ended it: ``{"batch_id", "batch_size", "model_version", "preprocess_ms", "infer_ms"}``.
        position: how many jobs of its model go before it while it waits; None when it does not.
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

    @classmethod
    def from_hash(cls, job_id: str, fields: dict[str, bytes], *, position: int | None = None) -> JobRecord:
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
            position=position,
        )
