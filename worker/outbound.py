"""What a worker with threads holds to send webhooks and fetch images: its clients, made on first use and shared."""

from __future__ import annotations

import os
import threading
from typing import Any

from celery import Celery

from tidegate.ledger import Ledger
from tidegate.outbound import Door
from tidegate.outgoing import FETCHES, WEBHOOKS, Errand
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.tickets import TicketOffice
from worker.fetch import ImageFetcher
from worker.webhooks import WebhookSender

#: Threads that may send at the same time; the worker's concurrency is below it.
MOST_THREADS = 256


class Outbound:
    """One process's clients, and what it can be asked to do."""

    def __init__(self, settings: Settings) -> None:
        self.pid = os.getpid()
        ledger = Ledger(connect(settings, max_connections=MOST_THREADS), settings)
        door = Door(settings, connections=MOST_THREADS)
        self.sender = WebhookSender(ledger, door, settings)
        self.fetcher = ImageFetcher(ledger, door, TicketOffice(ledger.client), settings)


_outbound: Outbound | None = None
_making = threading.Lock()


def current() -> Outbound:
    """This process's; made anew when the process has forked since."""
    global _outbound  # noqa: PLW0603  # one a process, and the process is what it belongs to
    with _making:
        if _outbound is None or _outbound.pid != os.getpid():
            _outbound = Outbound(load_settings())
        return _outbound


def register_tasks(app: Celery) -> None:
    """The two tasks. What they return is shown by Flower, and means nothing else."""

    @app.task(name=WEBHOOKS.task, ignore_result=True)  # type: ignore[untyped-decorator]  # celery is untyped
    def deliver(delivery_id: str, lease: str) -> Any:
        """Try to deliver a webhook."""
        return current().sender.deliver(Errand(delivery_id, lease))

    @app.task(name=FETCHES.task, ignore_result=True)  # type: ignore[untyped-decorator]  # celery is untyped
    def fetch(job_id: str, lease: str) -> Any:
        """Fetch the image of a job."""
        return current().fetcher.fetch(Errand(job_id, lease))
