"""Which queues this worker consumes: those of each model that is ready, a lane each, found again every few seconds.

A step of Celery's consumer. A worker that was started without ``-Q`` serves every model; one that was given
queues serves those of them that belong to a model. A model that stops answering loses its consumer, so that
its jobs wait in Redis and not here; it gets it back when Triton answers again.

Which Triton that is: what the catalogue says holds for everyone, and a worker may have lost its own way there. So after
a batch of its own met an outage, a model that the catalogue calls ready is taken up again only when this worker itself
has reached Triton, or when the catalogue has meanwhile said that the outage was everyone's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from celery import bootsteps

from tidegate.catalogue import ModelEntry, ModelState
from tidegate.tickets import DEFAULT_QUEUE, queue_of, queues_of
from worker.child import discover, discover_for_sure
from worker.discovery import Look
from worker.pool import MicroBatchPool
from worker.transport import Channel

log = structlog.get_logger(__name__)

#: Batches' worth of tickets that a worker holds for each child: one to run, one to follow it.
PREFETCH_BATCHES = 2


class ModelQueues(bootsteps.StartStopStep):  # type: ignore[misc]  # celery is untyped
    """Follows the catalogue with the consumer's queues and its prefetch count."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._consumer = consumer
        self._only: set[str] | None = None
        self._catalogue: Mapping[str, ModelEntry] = {}
        self._asking = False
        self._doubted: set[str] = set()

    def include_if(self, consumer: Any) -> bool:
        """Only where the pool makes batches: the webhook worker has threads."""
        return isinstance(consumer.pool, MicroBatchPool)

    def start(self, consumer: Any) -> None:
        """At each (re)connection: take up again what was consumed before."""
        self._asking = False
        if self._only is None:
            chosen = set(consumer.app.amqp.queues.consume_from)
            self._only = set() if DEFAULT_QUEUE in chosen else chosen
            if self._only:
                # Queues that no model stands behind yet would only be popped from in vain.
                for queue in self._only:
                    consumer.cancel_task_queue(queue)
        self._apply(self._catalogue)

    def stop(self, consumer: Any) -> None:
        """Before the worker drains: the pop that is under way would take one of the tickets that are given back."""
        channel = consumer.task_consumer.channel if consumer.connection and consumer.task_consumer else None
        if isinstance(channel, Channel):
            channel.finish_poll()

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Ask at once, and then at the settings' pace."""
        del consumer
        self._ask()
        hub.call_repeatedly(self._pool.settings.model_poll_seconds, self._ask)

    @property
    def _pool(self) -> MicroBatchPool:
        pool = self._consumer.pool
        assert isinstance(pool, MicroBatchPool)
        return pool

    def _ask(self) -> None:
        if not self._asking:
            self._asking = True
            self._pool.run_chore(discover_for_sure if self._doubted else discover, self._answer)

    def _answer(self, look: Look | None) -> None:
        self._asking = False
        if look is not None and self._consumer.task_consumer is not None:
            self._apply(self._as_seen_from_here(look))

    def _as_seen_from_here(self, look: Look) -> Mapping[str, ModelEntry]:
        """The catalogue, with the models unavailable that this worker cannot reach though others can."""
        ready = {name for name, entry in look.catalogue.items() if entry.ready}
        if look.reached is not None:
            self._doubted = set() if look.reached else ready
        self._doubted &= ready
        away = {"state": ModelState.UNAVAILABLE, "reason": "This worker cannot reach Triton."}
        return {
            name: entry.model_copy(update=away) if name in self._doubted else entry
            for name, entry in look.catalogue.items()
        }

    def _on_outage(self, model: str) -> None:
        self._doubted.add(model)
        self._leave(model)

    def _apply(self, catalogue: Mapping[str, ModelEntry]) -> None:
        mine = {name: entry for name, entry in catalogue.items() if not self._only or queue_of(name) in self._only}
        for name in self._catalogue.keys() | mine.keys():
            entry = mine.get(name)
            if entry is not None and entry.ready:
                self._consume(name)
            else:
                self._leave(name)
        self._catalogue = mine
        self._set_prefetch(mine)
        self._pool.set_models(mine, on_outage=self._on_outage, take_no_more=self._take_no_more)

    def _take_no_more(self) -> None:
        consumer = self._consumer.task_consumer
        if consumer is not None and isinstance(consumer.channel, Channel):
            consumer.channel.take_no_more()

    def _consume(self, model: str) -> None:
        for queue in queues_of(model):
            if not self._consumer.task_consumer.consuming_from(queue):
                # The default exchange routes by the queue's name, so nothing is to be bound.
                self._consumer.add_task_queue(queue, exchange="", routing_key=queue)

    def _leave(self, model: str) -> None:
        for queue in queues_of(model):
            if self._consumer.task_consumer.consuming_from(queue):
                self._consumer.cancel_task_queue(queue)

    def _set_prefetch(self, catalogue: Mapping[str, ModelEntry]) -> None:
        """A window for each model, as if it were the only one; a burst on one then leaves the others theirs."""
        batches = PREFETCH_BATCHES * self._pool.num_processes
        windows = {queue_of(name): batches * entry.batch_limit for name, entry in catalogue.items() if entry.ready}
        wanted = sum(windows.values()) or batches
        channel = self._consumer.task_consumer.channel
        if isinstance(channel, Channel):
            channel.set_windows(windows)
        qos = self._consumer.qos
        if qos.value < wanted:
            qos.increment_eventually(wanted - qos.value)
        elif qos.value > wanted:
            qos.decrement_eventually(qos.value - wanted)
