"""Where jobs are read for requests: many at a time, when many are asked for at a time.

Requests that come while others' jobs are being read form the next group, which costs one round trip, and one more where
some of its jobs wait and their places are wanted. A lone request is its own group and waits for nobody.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import NamedTuple

from tidegate.errors import StoreUnavailable
from tidegate.jobs import JobRecord, State
from tidegate.ledger import AsyncLedger

#: Most jobs in one group: some milliseconds' worth of reading, in which nothing else has its turn.
GROUP_JOBS = 100


class _Question(NamedTuple):
    job_id: str
    with_place: bool
    answer: asyncio.Future[JobRecord | None]


class Readings:
    """Reads jobs in groups; one per process."""

    def __init__(self, ledger: AsyncLedger) -> None:
        self._ledger = ledger
        self._asked: deque[_Question] = deque()
        self._reading: asyncio.Task[None] | None = None

    async def job(self, job_id: str, *, with_place: bool = True) -> JobRecord | None:
        """A job as it stands, with its place while it waits; None when there is none (any more).

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        answer: asyncio.Future[JobRecord | None] = asyncio.get_running_loop().create_future()
        self._asked.append(_Question(job_id, with_place, answer))
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all(), name="readings")
        return await answer

    async def _read_all(self) -> None:
        try:
            while self._asked:
                group = [self._asked.popleft() for _ in range(min(GROUP_JOBS, len(self._asked)))]
                await self._answer(group)
        finally:
            self._reading = None

    async def _answer(self, group: Sequence[_Question]) -> None:
        group = [question for question in group if not question.answer.done()]
        if not group:
            return
        try:
            records = await self._ledger.get_many([question.job_id for question in group])
            await self._place([question.with_place for question in group], records)
        except StoreUnavailable as error:
            self._fail(group, error)
        except Exception as error:  # noqa: BLE001 - raised again where each of the group waits
            if len({question.job_id for question in group}) == 1:
                self._fail(group, error)
            else:
                # A record that cannot be read is the trouble of those alone who asked for it: it is found by halves.
                group.sort(key=attrgetter("job_id"))
                middle = len(group) // 2
                await self._answer(group[:middle])
                await self._answer(group[middle:])
        else:
            for question, record in zip(group, records, strict=True):
                if not question.answer.done():
                    question.answer.set_result(record)

    @staticmethod
    def _fail(group: Sequence[_Question], error: Exception) -> None:
        for question in group:
            if not question.answer.done():
                question.answer.set_exception(error)

    async def _place(self, wanted: Sequence[bool], records: list[JobRecord | None]) -> None:
        """Put those that wait, and whose places are wanted, where they stand."""
        waiting = {
            index: record
            for index, (with_place, record) in enumerate(zip(wanted, records, strict=True))
            if with_place and record is not None and record.state is State.QUEUED
        }
        if not waiting:
            return
        places = await self._ledger.run(self._ledger.commands.places([record.id for record in waiting.values()]))
        for (index, record), place in zip(waiting.items(), places, strict=True):
            if place is not None:
                records[index] = replace(record, position=place.position, start_in_ms=place.start_in_ms)
