"""Who waits for news of which job: one Redis subscription a process, however many wait.

The ledger publishes the ids of jobs that were taken up and of jobs that ended. A message that is missed, say while the
connection is renewed, costs nobody an answer: all who wait look again after every subscription, and every few seconds
one pass over all of their jobs finds what was not told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from api.deadline import store_deadline
from api.readings import Readings
from tidegate.commands import Place
from tidegate.errors import StoreUnavailable
from tidegate.jobs import JobRecord, State
from tidegate.ledger import AsyncLedger

log = structlog.get_logger(__name__)

#: How often the jobs of those who wait are looked at, in case that a message was lost.
REREAD_SECONDS = 5.0
#: Jobs that are looked at in one round trip.
REREAD_JOBS = 200
#: Woken clients whose jobs are read at the same time; fewer than there are connections.
READS_AT_ONCE = 32
#: After so long without a word the connection is asked whether it lives, and given up if it says nothing.
SILENCE_SECONDS = 5.0
#: Pause before the next try to subscribe, while Redis cannot be reached.
RECONNECT_SECONDS = 0.5


class Watch:
    """One who waits for news of one job.

    Attributes:
        of_progress: it wants to know of every change, not of the end alone.
        place: of the job while it waits, as it was last told; kept for those who want to know of every change.
    """

    __slots__ = ("_news", "_waiting", "of_progress", "place")

    def __init__(self, *, of_progress: bool) -> None:
        self.of_progress = of_progress
        self.place: Place | None = None
        self._news = False
        self._waiting: asyncio.Future[None] | None = None

    def tell(self) -> None:
        """There is news."""
        self._news = True
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def wait(self, *, until: float) -> bool:
        """Wait for news that came since the last call; False when there was none until then, on the loop's clock."""
        if not self._news:
            loop = asyncio.get_running_loop()
            self._waiting = loop.create_future()
            alarm = loop.call_at(until, _give_up, self._waiting)
            try:
                await self._waiting
            finally:
                alarm.cancel()
                self._waiting = None
        told, self._news = self._news, False
        return told


def _give_up(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Waiters:
    """Wakes those who wait for jobs. :meth:`listen` and :meth:`reread` run as long as the process serves."""

    def __init__(self, client: redis.asyncio.Redis, ledger: AsyncLedger, readings: Readings) -> None:
        self._client = client
        self._ledger = ledger
        self._readings = readings
        self._ended_channel = ledger.commands.ended_channel
        self._started_channel = ledger.commands.started_channel
        self._watches: dict[str, set[Watch]] = {}
        self.hurried = False
        # Thousands may be woken at once. The time for Redis to answer begins with each one's turn, or those at the end
        # would be told of an outage that is none.
        self._turns = asyncio.Semaphore(READS_AT_ONCE)

    @property
    def count(self) -> int:
        """How many wait now."""
        return sum(len(watches) for watches in self._watches.values())

    def hurry(self) -> None:
        """Answer everybody with what is known by now, from now on: the process is about to end."""
        self.hurried = True
        self._wake(list(self._watches))

    @contextmanager
    def watching(self, job_id: str, *, of_progress: bool = False) -> Iterator[Watch]:
        """Be told of the job while the block runs. What is read within it misses nothing."""
        watch = Watch(of_progress=of_progress)
        self._watches.setdefault(job_id, set()).add(watch)
        try:
            yield watch
        finally:
            watches = self._watches[job_id]
            watches.discard(watch)
            if not watches:
                del self._watches[job_id]

    async def wait_for_end(self, job_id: str, *, tenant: str, until: float) -> JobRecord | None:
        """The job once it has ended, or as it stands when the wait is over; None when the tenant has none such.

        Args:
            job_id: an id as ours are.
            tenant: whose it must be: nobody learns by waiting what others have.
            until: when to answer in any case, on the event loop's clock.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        loop = asyncio.get_running_loop()
        # Registered before the job is read: an end between the two is not missed.
        with self.watching(job_id) as watch:
            # Who has just come takes no turn, so that an outage is told in time.
            turn: AbstractAsyncContextManager[None] = nullcontext()
            while True:
                async with turn, store_deadline(self._ledger.commands.settings):
                    over = self.hurried or loop.time() >= until
                    record = await self._readings.job(job_id, with_place=over)
                    if record is None or record.tenant != tenant:
                        return None
                    if over or record.state.terminal:
                        return record
                await watch.wait(until=until)
                turn = self._turns

    async def read(self, job_id: str) -> JobRecord | None:
        """The job as it stands, with its place.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        async with store_deadline(self._ledger.commands.settings):
            return await self._readings.job(job_id)

    async def listen(self) -> None:
        """Subscribe, wake whoever is meant, and subscribe again after every outage; ends by cancellation."""
        while True:
            try:
                async with self._client.pubsub() as pubsub:
                    await pubsub.subscribe(self._ended_channel, self._started_channel)
                    await self._deliver(pubsub)
            except RedisError as error:
                log.warning("waiters.disconnected", reason=type(error).__name__, waiting=self.count)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def reread(self) -> None:
        """Look at all jobs that anybody waits for, again and again; ends by cancellation."""
        while True:
            await asyncio.sleep(REREAD_SECONDS)
            job_ids = list(self._watches)
            try:
                for start in range(0, len(job_ids), REREAD_JOBS):
                    await self._look_at(job_ids[start : start + REREAD_JOBS])
            except StoreUnavailable as error:
                log.warning("waiters.not_reread", reason=str(error), waiting=self.count)

    async def _look_at(self, job_ids: list[str]) -> None:
        async with store_deadline(self._ledger.commands.settings):
            states = await self._ledger.states(job_ids)
        self._wake([job_id for job_id in job_ids if (state := states[job_id]) is None or state.terminal])
        self._wake([job_id for job_id in job_ids if states[job_id] is State.RUNNING], of_progress=True)
        queued = [
            job_id
            for job_id in job_ids
            if states[job_id] is State.QUEUED and any(watch.of_progress for watch in self._watches.get(job_id, ()))
        ]
        if queued:
            async with store_deadline(self._ledger.commands.settings):
                places = await self._ledger.run(self._ledger.commands.places(queued))
            for job_id, place in zip(queued, places, strict=True):
                self._tell_place(job_id, place)

    def _tell_place(self, job_id: str, place: Place | None) -> None:
        for watch in self._watches.get(job_id, ()):
            if place is not None and place != watch.place:
                watch.place = place
                watch.tell()

    async def _deliver(self, pubsub: Any) -> None:
        """Until the connection has nothing to say, not even when asked."""
        asked = False
        while True:
            message = await pubsub.get_message(timeout=SILENCE_SECONDS)
            if message is None and asked:
                log.warning("waiters.disconnected", reason="silence", waiting=self.count)
                return
            asked = message is None
            if message is None:
                await pubsub.ping()
            elif message["type"] == "subscribe":
                # The client library also subscribes anew by itself; what was said meanwhile is lost.
                self._wake(list(self._watches))
            elif message["type"] == "message":
                started = message["channel"].decode() == self._started_channel
                self._wake(message["data"].decode().split(), of_progress=started)

    def _wake(self, job_ids: Iterable[str], *, of_progress: bool = False) -> None:
        """Tell who waits for these jobs; with ``of_progress`` only those who want to know of every change."""
        for job_id in job_ids:
            for watch in self._watches.get(job_id, ()):
                if watch.of_progress or not of_progress:
                    watch.tell()
