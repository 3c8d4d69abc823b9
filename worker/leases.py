"""What a worker's main process tells the ledger about the batches that its children run.

An outage of Redis is logged and no more: leases lapse by themselves, and the sweeper brings the jobs back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import structlog

from tidegate.commands import Return, Ticket
from tidegate.errors import InternalError, StoreUnavailable
from tidegate.ledger import Ledger
from tidegate.tickets import TicketOffice
from worker.batch import BatchCall

log = structlog.get_logger(__name__)


class Leases:
    """The leases of one worker's batches; each call waits for at most an answer of Redis or two."""

    def __init__(self, ledger: Ledger, office: TicketOffice) -> None:
        self._ledger = ledger
        self._office = office

    def renew(self, calls: Iterable[BatchCall]) -> None:
        """Keep the jobs of these batches."""
        leases = [(call.batch_id, job_id) for call in calls for job_id in call.job_ids]
        if not leases:
            return
        try:
            self._ledger.run(self._ledger.commands.renew(leases))
        except StoreUnavailable as error:
            log.warning("lease.not_renewed", count=len(leases), error=error.code)

    def lose(self, call: BatchCall, error: InternalError | None = None) -> dict[str, str]:
        """Tell that a batch came to nothing; gives the states of its jobs, or nothing in an outage.

        Args:
            call: the batch.
            error: what jobs at their last attempt fail with; by default that their process died.
        """
        try:
            returned = self._ledger.run(self._ledger.commands.lose(call.batch_id, call.job_ids, error=error))
        except StoreUnavailable as outage:
            log.warning("batch.lost_not_stored", batch_id=call.batch_id, error=outage.code)
            return {}
        self.issue([item.ticket for item in returned if item.ticket])
        return dict(zip(call.job_ids, (item.state for item in returned), strict=True))

    def give_back(self, call: BatchCall) -> bool:
        """Put a batch's jobs back into their queue as if they had not been begun; False in an outage."""
        returns = [Return(job_id, refund=True) for job_id in call.job_ids]
        try:
            returned = self._ledger.run(self._ledger.commands.release(call.batch_id, returns))
        except StoreUnavailable as outage:
            log.warning("batch.not_given_back", batch_id=call.batch_id, error=outage.code)
            return False
        log.warning("batch.given_back", batch_id=call.batch_id, jobs=len(call.job_ids))
        self.issue([item.ticket for item in returned if item.ticket])
        return True

    def issue(self, tickets: Sequence[Ticket]) -> None:
        """Issue tickets that the ledger wants."""
        try:
            self._office.issue(tickets)
        except StoreUnavailable as outage:
            log.warning("ticket.not_issued", count=len(tickets), error=outage.code)
