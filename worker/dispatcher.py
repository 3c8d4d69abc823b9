"""Hands out what may go to hosts that clients named: a thread in each worker that consumes ``webhooks`` or ``fetch``.

A step of Celery's consumer. It waits until something falls due or somebody tells that something has, leases it out of
the ledger, and publishes a message for each. The broker's list is kept about as long as one worker has threads, so
that which host comes next is decided late, and any worker may do the work.
"""

from __future__ import annotations

import threading
from typing import Any

import structlog
from celery import bootsteps
from redis.exceptions import RedisError

from tidegate.errors import StoreUnavailable
from tidegate.ledger import Ledger
from tidegate.outgoing import FETCHES, WEBHOOKS, Outgoing, take
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.tickets import TicketOffice
from worker.pool import MicroBatchPool

log = structlog.get_logger(__name__)

#: Longest sleep, so that a message that was lost with its connection delays nothing much, in seconds.
IDLE_SECONDS = 1.0
#: How long to wait when the broker's list is full and nobody tells of room, in seconds.
FULL_SECONDS = 0.1
#: How long to let wake-ups gather, in seconds: each of them costs a script.
GATHER_SECONDS = 0.005


class Dispatch:
    """Leases out and publishes, once each time it is asked."""

    def __init__(self, ledger: Ledger, office: TicketOffice, settings: Settings, *, room: int) -> None:
        """Keep the broker's lists at ``room`` messages at most."""
        self._ledger = ledger
        self._office = office
        self._settings = settings
        self._room = room

    def run(self, work: Outgoing) -> float:
        """Publish what may go now; gives the seconds after which to ask again.

        Raises:
            StoreUnavailable: Redis does not answer. What was leased out and not published comes back with its lease.
        """
        taken = self._ledger.run(take(work, self._settings, room=self._room))
        self._office.send(work, taken.errands)
        if taken.full:
            return FULL_SECONDS
        return IDLE_SECONDS if taken.next_seconds is None else min(IDLE_SECONDS, taken.next_seconds)


class Dispatcher(bootsteps.StartStopStep):  # type: ignore[misc]  # celery is untyped
    """Runs :class:`Dispatch` in a thread, for the queues that this worker consumes."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def include_if(self, consumer: Any) -> bool:
        """Only in a worker with threads that was given one of these queues."""
        chosen = self._works(consumer)
        if chosen and isinstance(consumer.pool, MicroBatchPool):
            log.error("dispatcher.needs_threads", queues=[work.queue for work in chosen], start_with="--pool=threads")
            return False
        return bool(chosen)

    def start(self, consumer: Any) -> None:
        """At each (re)connection."""
        self.stop(consumer)
        self._stopping = threading.Event()
        room = consumer.pool.num_processes
        arguments = (self._works(consumer), room, self._stopping)
        self._thread = threading.Thread(target=_dispatch_for_ever, args=arguments, name="dispatcher", daemon=True)
        self._thread.start()

    def stop(self, consumer: Any) -> None:
        """At a lost connection, and at the end: nothing new goes out."""
        del consumer
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * IDLE_SECONDS)
            self._thread = None

    @staticmethod
    def _works(consumer: Any) -> list[Outgoing]:
        chosen = consumer.app.amqp.queues.consume_from
        return [work for work in (WEBHOOKS, FETCHES) if work.queue in chosen]


def _dispatch_for_ever(works: list[Outgoing], room: int, stopping: threading.Event) -> None:
    settings = load_settings()
    with connect(settings) as client:
        dispatch = Dispatch(Ledger(client, settings), TicketOffice(client), settings, room=room)
        while not stopping.is_set():
            try:
                with client.pubsub(ignore_subscribe_messages=True) as told:
                    told.subscribe(f"{settings.key_prefix}lines")
                    while not stopping.is_set():
                        _wait(told, min(dispatch.run(work) for work in works))
                        stopping.wait(GATHER_SECONDS)
            except (StoreUnavailable, RedisError) as error:
                log.warning("dispatcher.no_store", error=type(error).__name__)
                stopping.wait(IDLE_SECONDS)


def _wait(told: Any, seconds: float) -> None:
    """Until somebody tells that something fell due, or the time is over; further messages mean the same."""
    if told.get_message(timeout=seconds) is not None:
        while told.get_message(timeout=0) is not None:
            pass
