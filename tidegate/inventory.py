"""Which jobs wait, run, or failed for a cause of ours: the operator's view, read from the ledger's indexes.

``tidegate jobs`` calls this. A list costs what it shows: no index is walked to its end and no key space scanned.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from typing import Any

from redis.exceptions import RedisError

from tidegate.commands import Requeued
from tidegate.jobs import LANES, JobRecord, Priority, new_job_id
from tidegate.ledger import Ledger
from tidegate.store import translate
from tidegate.tickets import TicketOffice

#: Ids read in one go.
PAGE = 100


class Listed(enum.StrEnum):
    """What there is an index of. What ended well, or as its client wanted it, can be read by its id alone."""

    QUEUED = "queued"
    """In the order in which they will run, a lane after the other; those that were put off come last."""
    RUNNING = "running"
    """Those whose leases lapse first come first."""
    FAILED = "failed"
    """Dead letters, the latest first: jobs that failed for a cause of ours and can be run again."""


class Inventory:
    """Reads lists of jobs, and runs dead letters again. Raises StoreUnavailable when Redis does not do its part."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._prefix = ledger.commands.prefix

    def list_jobs(
        self, state: Listed, *, model: str | None = None, code: str | None = None, limit: int = 100
    ) -> list[JobRecord]:
        """The first jobs of a list.

        Args:
            state: which list.
            model: leave out those of other models.
            code: leave out dead letters of other codes.
            limit: most jobs to give.
        """
        jobs = (self._ledger.get(job_id) for job_id in self._ids(state, model, code))
        # An id may outlive its record for as long as it takes the sweeper to come by.
        wanted = (job for job in jobs if job is not None and model in (None, job.model))
        return list(islice(wanted, limit))

    def count_dead_letters(self) -> dict[str, int]:
        """How many dead letters there are, by code."""
        try:
            counts: Any = self._ledger.client.hgetall(f"{self._prefix}dead")
        except RedisError as error:
            raise translate(error) from error
        return {name.decode(): int(count) for name, count in sorted(counts.items()) if name != b"bytes"}

    def requeue(self, job_ids: Sequence[str]) -> list[Requeued]:
        """Run dead letters again, each as a new job.

        Raises:
            StoreUnavailable: also where the tickets cannot be issued; then the sweeper does it later.
        """
        letters = {job_id: new_job_id() for job_id in job_ids}
        requeued = self._ledger.run(self._ledger.commands.requeue(letters))
        TicketOffice(self._ledger.client).issue([item.ticket for item in requeued if item.ticket])
        return requeued

    def _ids(self, state: Listed, model: str | None, code: str | None) -> Iterator[str]:
        if state is Listed.FAILED:
            for each in [code] if code else self.count_dead_letters():
                yield from (member.rpartition(":")[0] for member in self._members(f"dead:{each}", latest_first=True))
            return
        for each in [model] if model else self._ledger.models():
            for index in self._indexes(state, each):
                yield from self._members(index)

    @staticmethod
    def _indexes(state: Listed, model: str) -> Iterable[str]:
        if state is Listed.RUNNING:
            return [f"running:{model}"]
        lanes = ["", *(f":{lane}" for lane in range(1, LANES))]
        queues = [f"queued:{model}:{priority}{lane}" for priority in Priority for lane in lanes]
        return [*queues, f"deferred:{model}"]

    def _members(self, index: str, *, latest_first: bool = False) -> Iterator[str]:
        for start in count(step=PAGE):
            try:
                members: Any = self._ledger.client.zrange(
                    f"{self._prefix}{index}", start, start + PAGE - 1, desc=latest_first
                )
            except RedisError as error:
                raise translate(error) from error
            yield from (member.decode() for member in members)
            if len(members) < PAGE:
                return
