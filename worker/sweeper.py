"""The sweeper: lapsed leases, due and expired jobs, lost tickets. Runs in every worker; one at a time does the work.

A step of Celery's consumer. What is found and how it is judged is ``lua/sweep.lua``; here it is asked for on a
timer, and the tickets that it wants are issued.
"""

from __future__ import annotations

from typing import Any

import structlog
from celery import bootsteps

from tidegate.commands import Swept, sweep_pace_seconds
from tidegate.errors import StoreUnavailable
from tidegate.ledger import Ledger
from tidegate.tickets import TicketOffice, all_ticket_lists
from worker.pool import MicroBatchPool

log = structlog.get_logger(__name__)

#: Most rounds of one sweep; what is left then waits for the next.
MAX_ROUNDS = 10


def sweep(ledger: Ledger, office: TicketOffice) -> Swept:
    """Sweep once, and issue the tickets that are wanted.

    Raises:
        StoreUnavailable: Redis does not answer. Tickets that were not issued are found by a later sweep.
    """
    lists = [(model, all_ticket_lists(model)) for model in ledger.models()]
    swept = ledger.run(ledger.commands.sweep(lists))
    office.issue(swept.tickets)
    more = swept
    for _ in range(MAX_ROUNDS):
        if not more.more:
            break
        more = ledger.run(ledger.commands.sweep(lists, lock=False))
        office.issue(more.tickets)
    return swept


class Sweeper(bootsteps.StartStopStep):  # type: ignore[misc]  # celery is untyped
    """Sweeps on a timer of the worker's event loop."""

    requires = ("celery.worker.consumer.tasks:Tasks",)

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._consumer = consumer

    def include_if(self, consumer: Any) -> bool:
        """Only where there is a ledger at hand."""
        return isinstance(consumer.pool, MicroBatchPool)

    def register_with_event_loop(self, consumer: Any, hub: Any) -> None:
        """Sweep at each (re)connection, and then again and again."""
        self._sweep()
        hub.call_repeatedly(sweep_pace_seconds(consumer.pool.settings), self._sweep)

    def _sweep(self) -> None:
        pool = self._consumer.pool
        try:
            swept = sweep(pool.ledger, pool.office)
        except StoreUnavailable as error:
            log.warning("sweep.failed", error=error.code)
            return
        if swept.expired or swept.lost or swept.due or swept.reticketed:
            log.info("sweep.done", expired=swept.expired, lost=swept.lost, due=swept.due, reticketed=swept.reticketed)
