"""Tickets: the Celery messages that say "look at job X", and the Celery settings both sides share.

A ticket is an ordinary message of an ordinary Celery task, with the job's id as the task's id, so Flower,
``celery inspect`` and revoke see and steer single jobs. It carries nothing but the model's name and may be
lost, doubled or late: the ledger decides what happens. It is written here and not by Celery, because that takes
longer than all else that accepting a job costs; a contract test holds both together.
"""

from __future__ import annotations

import os
import re
import uuid
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson
import redis
import redis.asyncio
from redis.exceptions import RedisError

from tidegate.commands import Ticket
from tidegate.errors import StoreUnavailable
from tidegate.jobs import LANES, Priority
from tidegate.outgoing import Errand, Outgoing
from tidegate.settings import Settings

#: The one task; ``worker/app.py`` registers it under this name.
CLASSIFY_TASK = "tidegate.classify"
#: A worker that consumes from this queue serves every model; one that was given other queues serves just those.
DEFAULT_QUEUE = "tidegate"

#: What the queues of the other lanes begin with.
_LANE = re.compile(rf"^{DEFAULT_QUEUE}-\d+(?=\.)")

#: Celery's numbers for our words; on Redis the lowest number goes first.
PRIORITY_NUMBERS = {Priority.HIGH: 0, Priority.NORMAL: 3, Priority.LOW: 6}
#: What kombu puts between a queue's name and the number of a priority other than the first.
PRIORITY_SEPARATOR = "\x06\x16"


def queue_of(model: str, lane: int = 0) -> str:
    """The Celery queue of a model's tickets in a lane; the first has the plain name."""
    return f"{DEFAULT_QUEUE}-{lane}.{model}" if lane else f"{DEFAULT_QUEUE}.{model}"


@lru_cache(maxsize=1024)
def first_queue(queue: str) -> str:
    """The queue of the same model's first lane."""
    return _LANE.sub(DEFAULT_QUEUE, queue, count=1)


def queues_of(model: str) -> list[str]:
    """The queues of all its lanes."""
    return [queue_of(model, lane) for lane in range(LANES)]


def list_key(queue: str, priority: int) -> str:
    """The Redis list of a Celery queue's messages of a priority."""
    return f"{queue}{PRIORITY_SEPARATOR}{priority}" if priority else queue


def ticket_lists(model: str, lane: int = 0) -> list[str]:
    """The Redis lists that hold a model's tickets in a lane: high, normal, low."""
    queue = queue_of(model, lane)
    return [list_key(queue, number) for number in PRIORITY_NUMBERS.values()]


def all_ticket_lists(model: str) -> list[str]:
    """Those of all lanes, lane by lane."""
    return [name for lane in range(LANES) for name in ticket_lists(model, lane)]


def celery_settings(settings: Settings) -> dict[str, Any]:
    """Celery's configuration as far as publisher and worker must agree on it."""
    return {
        "broker_url": settings.redis_url,
        "broker_connection_timeout": settings.redis_timeout_seconds,
        "broker_transport_options": {
            "priority_steps": sorted(PRIORITY_NUMBERS.values()),
            "socket_timeout": settings.redis_timeout_seconds,
            "socket_connect_timeout": settings.redis_timeout_seconds,
            # How soon a connection that died without a word is noticed, in seconds.
            "health_check_interval": 5,
        },
        # A pickle in the queue would be code to run: nothing but JSON is read.
        "accept_content": ["json"],
        "task_serializer": "json",
        "event_serializer": "json",
        "result_serializer": "json",
        # Results stand in the ledger; Celery's own backend would cost a key and a channel a job.
        "task_ignore_result": True,
        "task_default_queue": DEFAULT_QUEUE,
    }


class TicketOffice:
    """Issues tickets, from whichever thread or process asks; blocking, with a bounded wait.

    Every method raises StoreUnavailable when the broker cannot be reached or takes nothing; some of what was to be
    issued may be out by then.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client

    def issue(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets into their queues, in one round trip."""
        self._push(map(_ticket_message, tickets))

    def send(self, work: Outgoing, errands: Sequence[Errand]) -> None:
        """The same with what may go out to hosts that clients named."""
        self._push(_errand_message(work, errand) for errand in errands)

    def _push(self, messages: Iterable[_Message]) -> None:
        try:
            with self._client.pipeline(transaction=False) as pipeline:
                _queue_up(pipeline, messages)
                pipeline.execute()
        except RedisError as error:
            raise _refused() from error


class AsyncTicketOffice:
    """The same for the API, on ``redis.asyncio``."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def issue(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets into their queues, in one round trip."""
        try:
            async with self._client.pipeline(transaction=False) as pipeline:
                _queue_up(pipeline, map(_ticket_message, tickets))
                await pipeline.execute()
        except RedisError as error:
            raise _refused() from error


def _queue_up(pipeline: Any, messages: Iterable[_Message]) -> None:
    """One push a list; whoever pops takes them in their order."""
    lists: dict[str, list[bytes]] = {}
    for message in messages:
        lists.setdefault(message.list_key, []).append(message.content)
    for list_key, contents in lists.items():
        pipeline.lpush(list_key, *contents)


def _refused() -> StoreUnavailable:
    return StoreUnavailable("The broker does not take tickets.", retry_after_seconds=2)


class _Message(NamedTuple):
    """A message of Celery's, and the Redis list that it belongs into."""

    list_key: str
    content: bytes


def _ticket_message(ticket: Ticket) -> _Message:
    headers: dict[str, Any] = {"issued_ms": ticket.issued_ms}
    if ticket.deadline_ms is not None:
        headers["expires"] = datetime.fromtimestamp(ticket.deadline_ms / 1000, UTC).isoformat()
    return _message(
        CLASSIFY_TASK,
        (ticket.model,),
        task_id=ticket.job_id,
        queue=queue_of(ticket.model, ticket.lane),
        priority=PRIORITY_NUMBERS[ticket.priority],
        headers=headers,
    )


def _errand_message(work: Outgoing, errand: Errand) -> _Message:
    number = PRIORITY_NUMBERS[Priority.HIGH]
    return _message(work.task, (errand.id, errand.lease), task_id=str(uuid.uuid4()), queue=work.queue, priority=number)


def _message(
    task: str,
    args: tuple[str, ...],
    *,
    task_id: str,
    queue: str,
    priority: int,
    headers: Mapping[str, Any] = MappingProxyType({}),
) -> _Message:
    """What ``send_task`` would publish, without the fields that say nothing, in less time.

    Source: Celery's message protocol, version 2, and kombu's ``transport/virtual/base.py``.
    """
    body, args_shown = _body(args)
    content = {
        "body": body,
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py", "task": task, "id": task_id, "argsrepr": args_shown, "ignore_result": True, **headers,
        },
        "properties": {
            "body_encoding": "base64",
            "delivery_info": {"exchange": "", "routing_key": queue},
            "delivery_tag": os.urandom(8).hex(),
            "priority": priority,
        },
    }  # fmt: skip
    return _Message(list_key(queue, priority), orjson.dumps(content))


@lru_cache(maxsize=256)
def _body(args: tuple[str, ...]) -> tuple[str, str]:
    """A task's arguments as a message has them, and as Flower shows them."""
    return b64encode(orjson.dumps([args, {}, {}])).decode(), repr(list(args))
