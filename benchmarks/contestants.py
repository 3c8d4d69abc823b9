"""Those that drain a queue, behind one interface: fill it, run a worker on it, count what ended, check the answers."""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import redis

from benchmarks.environments import Environment
from benchmarks.null_contract import MODEL
from benchmarks.peers.null_model import TOP_K, class_of, image_of
from benchmarks.rig import (
    NULL_APP,
    Program,
    bench_settings,
    flower_program,
    redis_client,
    settle,
    succeeded,
    url_of,
    worker_program,
)
from tests.integration.workers import Client, environment
from tidegate.jobs import State

#: Of one image, which is also what a 512-pixel photo has.
IMAGE_BYTES = 40_000
SUBMIT_BATCH = 500
READ_BATCH = 500


class Contestant(Protocol):
    """One way to run jobs from a queue in Redis.

    Attributes:
        name: as it stands in the tables.
        redis: the one it has to itself.
        versions: of what it consists of; empty for ours.
    """

    @property
    def name(self) -> str:
        """See above."""
        ...

    @property
    def redis(self) -> redis.Redis:
        """See above."""
        ...

    @property
    def versions(self) -> dict[str, str]:
        """See above."""
        ...

    def fill(self, count: int) -> None:
        """Queue that many jobs, and forget whatever was there before."""
        ...

    def worker(self, *, events: bool = False) -> Program:
        """One worker process with one child, that drains what is queued as soon as it has started."""
        ...

    def flower(self) -> Program:
        """A Flower that watches that worker."""
        ...

    def ended(self) -> int:
        """How many jobs have ended since the queue was filled."""
        ...

    def wrong(self) -> int:
        """How many of the ended jobs did not get the right answer."""
        ...


@dataclass
class Tidegate:
    """Ours, with the model taken out."""

    redis: redis.Redis
    folder: Path
    image_bytes: int = IMAGE_BYTES
    name: str = "tidegate"
    versions: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.client = Client(bench_settings(self.redis))
        self.ids: list[str] = []
        self._ended_before = 0

    def fill(self, count: int, *, keep: bool = False) -> None:
        """Accept jobs and issue their tickets, as the API does; ``keep`` what stands there for a running worker."""
        if not keep:
            self.redis.flushall()
        self._ended_before = succeeded(self.client, MODEL)
        self.ids = []
        tail = os.urandom(self.image_bytes - 1)
        for start in range(0, count, SUBMIT_BATCH):
            images = [image_of(number, tail) for number in range(start, min(start + SUBMIT_BATCH, count))]
            self.ids += self.client.submit(MODEL, images)
        settle(self.redis)

    def worker(self, *, events: bool = False) -> Program:
        """See :class:`Contestant`."""
        return worker_program(self.client.settings, self.folder, app=NULL_APP, concurrency=1, events=events)

    def flower(self) -> Program:
        """See :class:`Contestant`."""
        return flower_program("worker.app", Path(sys.executable), self.folder, environment(self.client.settings))

    def ended(self) -> int:
        """The ledger's own count."""
        return succeeded(self.client, MODEL) - self._ended_before

    def left(self) -> int:
        """How many have not."""
        return len(self.ids) - self.ended()

    def wrong(self) -> int:
        """Every ended job must have named the class of its own image first."""
        missing = 0
        for start in range(0, len(self.ids), READ_BATCH):
            with self.redis.pipeline(transaction=False) as pipeline:
                for job_id in self.ids[start : start + READ_BATCH]:
                    pipeline.hmget(f"{self.client.settings.key_prefix}job:{job_id}", "state", "result")
                replies = pipeline.execute()
            missing += sum(not _right(start + place, *reply) for place, reply in enumerate(replies))
        return missing - self.left()


def _right(number: int, state: bytes | None, result: bytes | None) -> bool:
    if state != State.SUCCEEDED.encode() or result is None:
        return False
    predictions = json.loads(result)
    return len(predictions) == TOP_K and predictions[0]["class_id"] == class_of(number)


@dataclass
class Peer:
    """Another one, in an environment of its own; its module is a folder of ``benchmarks/peers``.

    Attributes:
        command: of the worker, after the environment's Python.
        queue: the Redis list that its messages wait in.
        result_key: where the result of a job of that id is found.
        predictions: reads such a result; None where the task failed.
        celery: whether it is Celery, so that Flower can watch it.
        extra: further variables for the worker.
    """

    name: str
    module: str
    redis: redis.Redis
    folder: Path
    command: Sequence[str]
    queue: str
    result_key: Callable[[str], str]
    predictions: Callable[[bytes], Any]
    extra: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._environment = Environment(self.module).make()
        self._filled = 0

    @property
    def versions(self) -> dict[str, str]:
        """See :class:`Contestant`."""
        return self._environment.versions()

    def fill(self, count: int) -> None:
        """Publish as the peer does, once; later fillings are copies of the first, kept in another database."""
        self._filled = count
        with redis_client(f"{url_of(self.redis)[:-1]}1") as kept:
            if kept.llen(self.queue) != count:
                self.redis.flushall()
                filler = f"benchmarks.peers.{self.module}.fill"
                self._environment.run("-m", filler, str(count), str(IMAGE_BYTES), REDIS_URL=url_of(self.redis))
                self.redis.copy(self.queue, self.queue, destination_db="1")
            self.redis.flushdb()
            kept.copy(self.queue, self.queue, destination_db="0")
        settle(self.redis)

    def worker(self, *, events: bool = False) -> Program:
        """See :class:`Contestant`."""
        command = [str(self._environment.python), *self.command, *(["--task-events"] if events else [])]
        return Program(command, log=self.folder / f"{self.module}.log", environ=self._environ())

    def flower(self) -> Program:
        """See :class:`Contestant`."""
        return flower_program(
            f"benchmarks.peers.{self.module}.app", self._environment.python, self.folder, self._environ()
        )

    def ended(self) -> int:
        """Each ended job leaves a key; the few that are no results stand there from the beginning."""
        return int(self.redis.dbsize())

    def wrong(self) -> int:
        """Every result that is there must name the class of its own image first."""
        numbers = range(self._filled)
        wrong = 0
        for start in range(0, self._filled, READ_BATCH):
            part = numbers[start : start + READ_BATCH]
            results: Any = self.redis.mget([self.result_key(f"job-{number}") for number in part])
            wrong += sum(
                result is not None and not self._right(number, result)
                for number, result in zip(part, results, strict=True)
            )
        return wrong

    def _right(self, number: int, result: bytes) -> bool:
        predictions = self.predictions(result)
        return predictions is not None and len(predictions) == TOP_K and predictions[0]["class_id"] == class_of(number)

    def _environ(self) -> dict[str, str]:
        return self._environment.environ(REDIS_URL=url_of(self.redis), **self.extra)


def _celery_predictions(result: bytes) -> Any:
    document = json.loads(result)
    return document["result"] if document["status"] == "SUCCESS" else None


def _taskiq_predictions(result: bytes) -> Any:
    document = pickle.loads(result)
    return None if document["is_err"] else document["return_value"]


def celery_peer(name: str, module: str, client: redis.Redis, folder: Path, **extra: str) -> Peer:
    """A peer on Celery, whichever way it batches or acknowledges."""
    return Peer(
        name=name,
        module=module,
        redis=client,
        folder=folder,
        command=("-m", "celery", "-A", f"benchmarks.peers.{module}.app", "worker", "-c", "1"),
        queue="celery",
        result_key="celery-task-meta-{}".format,
        predictions=_celery_predictions,
        extra=extra,
    )


def taskiq_peer(client: redis.Redis, folder: Path) -> Peer:
    """Taskiq with one worker process."""
    return Peer(
        name="taskiq",
        module="taskiq_redis",
        redis=client,
        folder=folder,
        command=("-m", "taskiq", "worker", "benchmarks.peers.taskiq_redis.app:broker", "--workers", "1"),
        queue="taskiq",
        result_key=str,
        predictions=_taskiq_predictions,
    )
