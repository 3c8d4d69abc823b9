"""Says once, after Redis was first reached, what in its settings endangers jobs. A step of Celery's consumer."""

from __future__ import annotations

from typing import Any

import structlog
from celery import bootsteps
from redis.exceptions import RedisError

from tidegate.settings import load_settings
from tidegate.store import connect
from tidegate.store_advice import warn_about

log = structlog.get_logger(__name__)


class StoreAdvice(bootsteps.StartStopStep):  # type: ignore[misc]  # celery is untyped
    """Looks at the first connection; later ones bring nothing new."""

    requires = ("celery.worker.consumer.connection:Connection",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._done = False

    def start(self, consumer: Any) -> None:
        """At each (re)connection, until it was answered."""
        del consumer
        if self._done:
            return
        try:
            with connect(load_settings()) as client:
                warn_about(client)
        except RedisError as error:
            log.info("redis.not_looked_at", error=type(error).__name__)
            return
        self._done = True
