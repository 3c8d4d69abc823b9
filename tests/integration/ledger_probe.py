"""Looks at the ledger's keys from below, and makes time pass for a job without waiting for it.

The scripts compare scores and fields with Redis's own clock, so moving a score into the past is the same as
having waited. The names of keys are written out here once more on purpose: they are what the design promises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tidegate.commands import Outcome, Swept, Ticket
from tidegate.errors import TidegateError
from tidegate.jobs import JobRecord, NewJob, Priority, State, new_job_id
from tidegate.ledger import Ledger

MODEL = "m"
HOUR_MS = 3_600_000
RUN = {"batch_id": "b", "batch_size": 1, "model_version": "1", "preprocess_ms": 1.0, "infer_ms": 2.0}
RESULT = [{"class_id": 967, "class_name": "espresso", "logit": 9.5, "probability": 0.95}]


def new_job(**fields: Any) -> NewJob:
    """A job with a small image, and with what the test cares about."""
    return NewJob(**{"id": new_job_id(), "model": MODEL, "image": b"an image", **fields})


def success(job_id: str, result: list[dict[str, Any]] | None = None) -> Outcome:
    """What a worker brings that ran the job."""
    return Outcome(job_id, RESULT if result is None else result, None, RUN)


def failure(job_id: str, error: TidegateError) -> Outcome:
    """What a worker brings that could not."""
    return Outcome(job_id, None, error, RUN)


def indexes_of(model: str) -> list[str]:
    """The sorted sets, without the prefix, in one of which an open job of the model stands."""
    return [f"queued:{model}:{priority}" for priority in Priority] + [f"running:{model}", f"deferred:{model}"]


@dataclass(frozen=True)
class Trace:
    """All that Redis holds of one job, byte for byte.

    Attributes:
        record: the hash.
        image: the input.
        scores: by the names of the indexes it is in, without the prefix.
        expires: whether the record will go by itself.
    """

    record: dict[bytes, bytes]
    image: bytes | None
    scores: dict[str, float]
    expires: bool

    @property
    def state(self) -> State:
        """Where the job stands."""
        return State(self.record[b"state"].decode())

    @property
    def places(self) -> set[str]:
        """The indexes alone."""
        return set(self.scores)


class LedgerProbe:
    """The shared ground of the ledger's tests: short forms of what they all do, the view from below, and time."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.commands = ledger.commands
        self.client = ledger.client
        self.prefix = ledger.commands.prefix

    def accept(self, count: int = 1, **fields: Any) -> list[Ticket]:
        """Put that many jobs in; gives the tickets that they want."""
        admissions = self.ledger.run(self.commands.accept([new_job(**fields) for _ in range(count)]))
        tickets = [admission.ticket for admission in admissions if admission.ticket]
        assert len(tickets) == count
        return tickets

    def claim(self, owner: str, *job_ids: str, alone: bool = False) -> list[str]:
        """Have ``owner`` take these up; gives the ids that it got."""
        claimed, _ = self.ledger.run(self.commands.claim(owner, job_ids, alone=alone))
        return [job.id for job in claimed]

    def sweep(self, *ticket_lists: str, model: str = MODEL) -> Swept:
        """Sweep one model, whoever swept just now; without lists its tickets are all gone."""
        lists = ticket_lists or [f"{self.prefix}none"] * len(Priority)
        return self.ledger.run(self.commands.sweep([(model, lists)], lock=False))

    def get(self, job_id: str) -> JobRecord:
        """The record as the ledger gives it."""
        record = self.ledger.get(job_id)
        assert record is not None
        return record

    def trace(self, job_id: str) -> Trace:
        """What Redis holds of a job."""
        record: Any = self.client.hgetall(f"{self.prefix}job:{job_id}")
        indexes = [*indexes_of(record[b"model"].decode()), "deadlines"]
        with self.client.pipeline() as pipeline:
            pipeline.get(f"{self.prefix}input:{job_id}")
            pipeline.pttl(f"{self.prefix}job:{job_id}")
            for index in indexes:
                pipeline.zscore(self.prefix + index, job_id)
            image, pttl, *scores = pipeline.execute()
        found = {index: score for index, score in zip(indexes, scores, strict=True) if score is not None}
        return Trace(record, image, found, expires=pttl > 0)

    def all_keys(self) -> set[str]:
        """Every key of the ledger, without the prefix."""
        found: Any = self.client.keys(f"{self.prefix}*")
        return {key.decode().removeprefix(self.prefix) for key in found}

    def waiting_bytes(self) -> int:
        """What the ledger believes that the inputs of open jobs weigh."""
        counted: Any = self.client.get(f"{self.prefix}bytes")
        return int(counted or 0)

    def now_ms(self) -> int:
        """Redis's clock."""
        seconds, microseconds = self.client.time()
        return seconds * 1000 + microseconds // 1000

    def pass_deadline(self, job_id: str) -> None:
        """The time at which it must have ended is over, if it has one."""
        if self.client.hexists(f"{self.prefix}job:{job_id}", "deadline_ms"):
            past = self.now_ms() - 1
            self.client.hset(f"{self.prefix}job:{job_id}", "deadline_ms", past)
            self.client.zadd(f"{self.prefix}deadlines", {job_id: past}, xx=True)

    def lapse_lease(self, job_id: str) -> None:
        """Its worker has not been heard of for too long, if one has it."""
        self._move(f"running:{self._model(job_id)}", job_id, 1)

    def end_pause(self, job_id: str) -> None:
        """It has rested long enough, if it was put off."""
        self._move(f"deferred:{self._model(job_id)}", job_id, 1)

    def age(self, job_id: str, milliseconds: int = HOUR_MS) -> int:
        """It has been so long since its ticket was issued, if it waits for a worker; gives when that was."""
        issued_ms = self.now_ms() - milliseconds
        for priority in Priority:
            self._move(f"queued:{self._model(job_id)}:{priority}", job_id, issued_ms)
        return issued_ms

    def spend_attempts(self, job_id: str, attempts: int) -> None:
        """It was tried that often, the present run included."""
        self.client.hset(f"{self.prefix}job:{job_id}", "attempts", attempts)

    def _model(self, job_id: str) -> str:
        model: Any = self.client.hget(f"{self.prefix}job:{job_id}", "model")
        return str(model.decode())

    def _move(self, index: str, job_id: str, score: int) -> None:
        self.client.zadd(self.prefix + index, {job_id: score}, xx=True)
