"""Which queues this worker consumes: one a model that is ready, found again every few seconds.

A step of Celery's consumer. A worker that was started without ``-Q`` serves every model; one that was given
queues serves those of them that belong to a model. A model that stops answering loses its consumer, so that
its jobs wait in Redis and not here; it gets it back when the catalogue says that it is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import structlog
from celery import bootsteps

from tidegate.catalogue import ModelEntry
from tidegate.tickets import DEFAULT_QUEUE, queue_of
from worker.child import discover
from worker.pool import MicroBatchPool

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
            self._pool.run_chore(discover, self._answer)

    def _answer(self, catalogue: Mapping[str, ModelEntry] | None) -> None:
        self._asking = False
        if catalogue is not None and self._consumer.task_consumer is not None:
            self._apply(catalogue)

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
        self._pool.set_models(mine, on_outage=self._leave)

    def _consume(self, model: str) -> None:
        if not self._consumer.task_consumer.consuming_from(queue_of(model)):
            # The default exchange routes by the queue's name, so nothing is to be bound.
            self._consumer.add_task_queue(queue_of(model), exchange="", routing_key=queue_of(model))

    def _leave(self, model: str) -> None:
        if self._consumer.task_consumer.consuming_from(queue_of(model)):
            self._consumer.cancel_task_queue(queue_of(model))

    def _set_prefetch(self, catalogue: Mapping[str, ModelEntry]) -> None:
        limits = [entry.batch_limit for entry in catalogue.values() if entry.ready]
        wanted = PREFETCH_BATCHES * self._pool.num_processes * max(limits, default=1)
        qos = self._consumer.qos
        if qos.value < wanted:
            qos.increment_eventually(wanted - qos.value)
        elif qos.value > wanted:
            qos.decrement_eventually(qos.value - wanted)
