"""Tickets: the Celery messages that say "look at job X", and the Celery settings both sides share.

A ticket is an ordinary message of an ordinary Celery task, with the job's id as the task's id, so Flower,
``celery inspect`` and revoke see and steer single jobs. It carries nothing but the model's name and may be
lost, doubled or late: the ledger decides what happens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeVar

from celery import Celery
from celery.exceptions import CeleryError
from kombu.exceptions import KombuError
from kombu.transport.redis import Channel

from tidegate.commands import Ticket
from tidegate.errors import StoreUnavailable
from tidegate.jobs import LANES, Priority
from tidegate.outgoing import Errand, Outgoing
from tidegate.settings import Settings

T = TypeVar("T")

#: The one task; ``worker/app.py`` registers it under this name.
CLASSIFY_TASK = "tidegate.classify"
#: A worker that consumes from this queue serves every model; one that was given other queues serves just those.
DEFAULT_QUEUE = "tidegate"

#: What the queues of the other lanes begin with.
_LANE = re.compile(rf"^{DEFAULT_QUEUE}-\d+(?=\.)")

#: Celery's numbers for our words; on Redis the lowest number goes first.
PRIORITY_NUMBERS = {Priority.HIGH: 0, Priority.NORMAL: 3, Priority.LOW: 6}
#: What kombu puts between a queue's name and the number of a priority other than the first.
PRIORITY_SEPARATOR = Channel.sep
#: Most tickets in one pipeline to Redis.
PUBLISH_BATCH = 100


def queue_of(model: str, lane: int = 0) -> str:
    """The Celery queue of a model's tickets in a lane; the first has the plain name."""
    return f"{DEFAULT_QUEUE}-{lane}.{model}" if lane else f"{DEFAULT_QUEUE}.{model}"


def first_queue(queue: str) -> str:
    """The queue of the same model's first lane."""
    return _LANE.sub(DEFAULT_QUEUE, queue, count=1)


def queues_of(model: str) -> list[str]:
    """The queues of all its lanes."""
    return [queue_of(model, lane) for lane in range(LANES)]


def ticket_lists(model: str, lane: int = 0) -> list[str]:
    """The Redis lists that hold a model's tickets in a lane: high, normal, low."""
    queue = queue_of(model, lane)
    numbers = PRIORITY_NUMBERS.values()
    return [f"{queue}{PRIORITY_SEPARATOR}{number}" if number else queue for number in numbers]


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
        "task_publish_retry": True,
        # Once more, at once: the first publish after a restart of Redis finds its old connection broken.
        "task_publish_retry_policy": {"max_retries": 1, "interval_start": 0, "interval_step": 0, "interval_max": 0},
    }


class TicketOffice:
    """Issues tickets, from whichever thread or process asks; blocking, with a bounded wait."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    @classmethod
    def for_publisher(cls, settings: Settings) -> TicketOffice:
        """An office with a Celery app of its own, for a process that is no worker."""
        app = Celery("tidegate", set_as_current=False)
        app.config_from_object(celery_settings(settings))
        return cls(app)

    def issue(self, tickets: Sequence[Ticket]) -> None:
        """Publish tickets, many in one round trip.

        Raises:
            StoreUnavailable: the broker cannot be reached; some may have been published.
        """
        self._publish_all(tickets, self._publish_ticket)

    def send(self, work: Outgoing, errands: Sequence[Errand]) -> None:
        """Publish what may go out to hosts that clients named; as :meth:`issue`."""
        self._publish_all(errands, partial(self._publish_errand, work))

    def _publish_all(self, items: Sequence[T], publish: Callable[[Any, T], None]) -> None:
        if not items:
            return
        try:
            with self._app.producer_pool.acquire(block=True, timeout=5) as producer:
                for start in range(0, len(items), PUBLISH_BATCH):
                    with producer.batch(PUBLISH_BATCH):
                        for item in items[start : start + PUBLISH_BATCH]:
                            publish(producer, item)
        except (KombuError, CeleryError, OSError, *self._broker_errors()) as error:
            raise StoreUnavailable("The broker does not take tickets.", retry_after_seconds=2) from error

    def _publish_ticket(self, producer: Any, ticket: Ticket) -> None:
        expires = datetime.fromtimestamp(ticket.deadline_ms / 1000, UTC) if ticket.deadline_ms is not None else None
        self._app.send_task(
            CLASSIFY_TASK,
            args=[ticket.model],
            task_id=ticket.job_id,
            queue=queue_of(ticket.model, ticket.lane),
            priority=PRIORITY_NUMBERS[ticket.priority],
            expires=expires,
            headers={"issued_ms": ticket.issued_ms},
            ignore_result=True,
            producer=producer,
            # The list needs no declaration: the default exchange routes by its name.
            declare=[],
        )

    def _publish_errand(self, work: Outgoing, producer: Any, errand: Errand) -> None:
        self._app.send_task(
            work.task,
            args=[errand.id, errand.lease],
            queue=work.queue,
            priority=PRIORITY_NUMBERS[Priority.HIGH],
            ignore_result=True,
            producer=producer,
            declare=[],
        )

    def _broker_errors(self) -> tuple[type[Exception], ...]:
        connection = self._app.connection_for_write()
        return tuple({*connection.connection_errors, *connection.channel_errors})

    def close(self) -> None:
        """Close the pooled connections."""
        self._app.close()
