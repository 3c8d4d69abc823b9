"""Looks at the ledger's keys from below, and makes time pass for a job without waiting for it.

The scripts compare scores and fields with Redis's own clock, so moving a score into the past is the same as
having waited. The names of keys are written out here once more on purpose: they are what the design promises.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from tidegate.commands import Outcome, Swept, Ticket
from tidegate.errors import TidegateError
from tidegate.jobs import LANES, JobRecord, NewJob, Priority, State, new_job_id
from tidegate.ledger import Ledger

MODEL = "m"
HOUR_MS = 3_600_000
#: The lease of a fetch that began before the test did, far in the future.
FETCH_LEASE = 4_102_444_800_000
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
    lanes = ["", *(f":{lane}" for lane in range(1, LANES))]
    queues = [f"queued:{model}:{priority}{lane}" for priority in Priority for lane in lanes]
    return queues + [f"{place}:{model}" for place in ("running", "deferred", "fetching")]


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
    def dead_letter(self) -> bool:
        """Whether it failed for a cause of ours, and its image is kept."""
        return b"dead" in self.record

    @property
    def places(self) -> set[str]:
        """The indexes alone."""
        return set(self.scores)


class Announcements:
    """The ids that the ledger publishes as ended while the block runs."""

    def __init__(self, ledger: Ledger) -> None:
        self._client = ledger.client
        self._channel = ledger.commands.ended_channel
        self._subscription = ledger.client.pubsub()

    def __enter__(self) -> Self:
        self._subscription.subscribe(self._channel)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._subscription.close()

    def read(self) -> list[str]:
        """Those since the last call: messages come in order, so all are here when a marker of ours is."""
        marker = uuid.uuid4().hex
        self._client.publish(self._channel, marker)
        job_ids: list[str] = []
        while (message := self._next()) != marker:
            job_ids += message.split()
        return job_ids

    def _next(self) -> str:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            message = self._subscription.get_message(ignore_subscribe_messages=True, timeout=1.0)
            if message is not None:
                return str(message["data"].decode())
        raise TimeoutError("nothing was published")


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
        """Sweep one model as a worker that sweeps regularly; without lists its tickets are all gone."""
        self.client.set(f"{self.prefix}swept", "1", px=60_000)
        lists = ticket_lists or [f"{self.prefix}none"] * len(Priority) * LANES
        return self.ledger.run(self.commands.sweep([(model, lists)], lock=False))

    def get(self, job_id: str) -> JobRecord:
        """The record as the ledger gives it."""
        record = self.ledger.get(job_id)
        assert record is not None
        return record

    def trace(self, job_id: str) -> Trace:
        """What Redis holds of a job."""
        return self.traces([job_id])[job_id]

    def traces(self, job_ids: Collection[str]) -> dict[str, Trace]:
        """What Redis holds of each, in two round trips."""
        with self.client.pipeline() as pipeline:
            for job_id in job_ids:
                pipeline.hgetall(f"{self.prefix}job:{job_id}")
            records = dict(zip(job_ids, pipeline.execute(), strict=True))
            indexes = {
                job_id: [*indexes_of(record[b"model"].decode()), "deadlines"] for job_id, record in records.items()
            }
            for job_id in job_ids:
                pipeline.get(f"{self.prefix}input:{job_id}")
                pipeline.pttl(f"{self.prefix}job:{job_id}")
                for index in indexes[job_id]:
                    pipeline.zscore(self.prefix + index, job_id)
            replies = iter(pipeline.execute())
        traces = {}
        for job_id in job_ids:
            image, pttl, scores = next(replies), next(replies), [(index, next(replies)) for index in indexes[job_id]]
            found = {index: score for index, score in scores if score is not None}
            traces[job_id] = Trace(records[job_id], image, found, expires=pttl > 0)
        return traces

    def all_keys(self) -> set[str]:
        """Every key of the ledger, without the prefix."""
        found: Any = self.client.keys(f"{self.prefix}*")
        return {key.decode().removeprefix(self.prefix) for key in found}

    def waiting_bytes(self) -> int:
        """What the ledger believes that the inputs of open jobs weigh."""
        counted: Any = self.client.hget(f"{self.prefix}open", "bytes")
        return int(counted or 0)

    def open_counts(self) -> dict[str, int]:
        """What the ledger believes is open: jobs, bytes, and bytes by model."""
        counted: Any = self.client.hgetall(f"{self.prefix}open")
        return {name.decode(): int(value) for name, value in counted.items()}

    def own_lists(self) -> dict[str, set[str]]:
        """The jobs in every tenant's lists, by the names of the lists."""
        keys: Any = self.client.keys(f"{self.prefix}own:*")
        members: Any = {key: self.client.zrange(key, 0, -1) for key in keys}
        return {
            key.decode().removeprefix(self.prefix): {job_id.decode() for job_id in ids} for key, ids in members.items()
        }

    def hashes(self, *patterns: str) -> dict[str, dict[str, int]]:
        """All hashes of numbers whose names match, without the prefix."""
        keys: list[Any] = [key for pattern in patterns for key in self.client.keys(self.prefix + pattern)]
        fields: Any = {key.decode().removeprefix(self.prefix): self.client.hgetall(key) for key in keys}
        return {key: {name.decode(): int(value) for name, value in found.items()} for key, found in fields.items()}

    def grave_counts(self) -> dict[str, int]:
        """What the ledger believes of its dead letters: their number by code, and the bytes of their images."""
        counted: Any = self.client.hgetall(f"{self.prefix}dead")
        return {name.decode(): int(value) for name, value in counted.items()}

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
        for index in indexes_of(self._model(job_id)):
            if index.startswith("queued:"):
                self._move(index, job_id, issued_ms)
        return issued_ms

    def await_image(self, job_id: str) -> None:
        """If it is queued: as if it had come with the URL of its image, which a worker is fetching now."""
        record: Any = self.client.hgetall(f"{self.prefix}job:{job_id}")
        if record[b"state"] != State.QUEUED.encode():
            return
        model = record[b"model"].decode()
        for index in indexes_of(model):
            self.client.zrem(self.prefix + index, job_id)
        for field in ("bytes", f"bytes:{model}"):
            self.client.hincrby(f"{self.prefix}open", field, -int(record[b"bytes"]))
        at: Any = {"image_url": "http://host/", "image_host": "host:80", "bytes": 0}
        self.client.hset(f"{self.prefix}job:{job_id}", mapping=at)
        self.client.delete(f"{self.prefix}input:{job_id}")
        self.client.zadd(f"{self.prefix}fetching:{model}", {job_id: self.now_ms()})
        self.client.zadd(f"{self.prefix}fetches:busy:host:80", {job_id: FETCH_LEASE})

    def spend_attempts(self, job_id: str, attempts: int) -> None:
        """It was tried that often, the present run included."""
        self.client.hset(f"{self.prefix}job:{job_id}", "attempts", attempts)

    def _model(self, job_id: str) -> str:
        model: Any = self.client.hget(f"{self.prefix}job:{job_id}", "model")
        return str(model.decode())

    def _move(self, index: str, job_id: str, score: int) -> None:
        self.client.zadd(self.prefix + index, {job_id: score}, xx=True)
