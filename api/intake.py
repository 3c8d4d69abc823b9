"""Where accepted submissions become jobs: many at a time, when many come at a time.

Submissions that arrive while another group is being committed form the next group, which costs one run of the
``accept`` script and one publication of tickets. A lone submission is its own group and waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import structlog

from tidegate.commands import Admission, Ticket
from tidegate.errors import StoreUnavailable
from tidegate.jobs import NewJob
from tidegate.ledger import AsyncLedger

log = structlog.get_logger(__name__)

#: Most jobs, and about how many bytes of images, in one run of ``accept``: Redis serves nobody else meanwhile.
GROUP_JOBS = 64
GROUP_BYTES = 8 * 1024 * 1024
#: How long the next group waits for the tickets of the one before the last to be out. A job without a ticket is not
#: lost: the sweeper issues one.
TICKETS_WAIT_SECONDS = 1.0


class Office(Protocol):
    """Issues tickets; see ``tidegate.tickets.AsyncTicketOffice``."""

    async def issue(self, tickets: Sequence[Ticket]) -> None:
        """Publish them, with a bounded wait."""


class _Submission(NamedTuple):
    job: NewJob
    admission: asyncio.Future[Admission]


class Intake:
    """Hands jobs to the ledger and their tickets to the broker, in groups; one per process."""

    def __init__(self, ledger: AsyncLedger, office: Office) -> None:
        self._ledger = ledger
        self._office = office
        self._waiting: deque[_Submission] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._publishing: set[asyncio.Task[None]] = set()
        # Tickets leave in the order of their groups.
        self._publisher = asyncio.Lock()

    async def submit(self, job: NewJob) -> Admission:
        """Accept a job, or learn that the queue is full. Whoever is canceled while waiting takes the job along.

        Raises:
            StoreUnavailable: Redis does not answer, or refuses writes.
        """
        return await self._enqueue(job)

    async def submit_all(self, jobs: Sequence[NewJob]) -> list[Admission]:
        """Accept jobs in their order, in as few groups as they fit in; else as :meth:`submit`."""
        return await asyncio.gather(*map(self._enqueue, jobs))

    async def aclose(self) -> None:
        """Wait until all that was submitted is committed and its tickets are out, or have failed to go."""
        if self._committing is not None:
            await self._committing
        await asyncio.gather(*self._publishing)

    def _enqueue(self, job: NewJob) -> asyncio.Future[Admission]:
        admission: asyncio.Future[Admission] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Submission(job, admission))
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all(), name="intake")
        return admission

    async def _commit_all(self) -> None:
        try:
            # Those that have arrived by now join: else the first would go alone, and all others wait for it.
            await asyncio.sleep(0)
            while group := self._next_group():
                await self._commit(group)
        finally:
            self._committing = None

    def _next_group(self) -> list[_Submission]:
        group: list[_Submission] = []
        size = 0
        while self._waiting and len(group) < GROUP_JOBS and size < GROUP_BYTES:
            submission = self._waiting.popleft()
            # A client that has given up meanwhile does not get a job that nobody would know of.
            if not submission.admission.done():
                group.append(submission)
                size += len(submission.job.image)
        return group

    async def _commit(self, group: Sequence[_Submission]) -> None:
        jobs = [submission.job for submission in group]
        try:
            admissions = await self._ledger.run(self._ledger.commands.accept(jobs))
        except Exception as error:  # noqa: BLE001 - raised again where each of the group waits
            for _, waiting in group:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        before = set(self._publishing)
        # First the tickets, and a turn of the loop later the answers: a worker begins while those are written.
        self._issue([admission.ticket for admission in admissions if admission.ticket is not None])
        await asyncio.sleep(0)
        for (_, waiting), admission in zip(group, admissions, strict=True):
            if not waiting.done():
                waiting.set_result(admission)
        # Tickets leave while the next group is committed; a broker that is slow is not run away from.
        if before:
            await asyncio.wait(before, timeout=TICKETS_WAIT_SECONDS)

    def _issue(self, tickets: Sequence[Ticket]) -> None:
        if not tickets:
            return
        task = asyncio.create_task(self._publish(tickets), name="tickets")
        self._publishing.add(task)
        task.add_done_callback(self._publishing.discard)

    async def _publish(self, tickets: Sequence[Ticket]) -> None:
        try:
            async with self._publisher:
                await self._office.issue(tickets)
        except StoreUnavailable as error:
            log.warning("tickets.unpublished", count=len(tickets), reason=str(error))
        except Exception:
            log.exception("tickets.unpublished", count=len(tickets))
