"""Celery's events at least cost: one message a round of the event loop, however many jobs the round moved.

Celery gathers task events and sends them when the loop comes round, but at the latest after 24: with batches of
tens of jobs that is several round trips to Redis for each. A step of Celery's consumer raises that number.
"""

from __future__ import annotations

from typing import Any

from celery import bootsteps

#: Most events in one message; Flower reads them as one list.
MOST_EVENTS = 1000


class GatherEvents(bootsteps.StartStopStep):  # type: ignore[misc]  # celery is untyped
    """Lets the dispatcher gather a whole round's events."""

    requires = ("celery.worker.consumer.events:Events",)

    def start(self, consumer: Any) -> None:
        """At each (re)connection there is a new dispatcher."""
        consumer.event_dispatcher.buffer_limit = MOST_EVENTS
