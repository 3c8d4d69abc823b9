"""Who waits for the end of which job: one Redis subscription a process, however many wait.

The ledger publishes the ids of ended jobs on one channel. A message that is missed, say while the connection is
renewed, costs nobody an answer: all who wait look again after every subscription, and every few seconds anyhow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis.asyncio
import structlog
from redis.exceptions import RedisError

from api.deadline import store_deadline
from tidegate.jobs import JobRecord
from tidegate.ledger import AsyncLedger

log = structlog.get_logger(__name__)

#: How often whoever waits looks at the job itself, in case that its message was lost.
REREAD_SECONDS = 5.0
#: After so long without a word the connection is asked whether it lives, and given up if it says nothing.
SILENCE_SECONDS = 5.0
#: Pause before the next try to subscribe, while Redis cannot be reached.
RECONNECT_SECONDS = 0.5


class Waiters:
    """Wakes those who wait for jobs. :meth:`listen` runs as long as the process serves."""

    def __init__(self, client: redis.asyncio.Redis, ledger: AsyncLedger) -> None:
        self._client = client
        self._ledger = ledger
        self._channel = ledger.commands.ended_channel
        self._events: dict[str, set[asyncio.Event]] = {}

    @property
    def count(self) -> int:
        """How many wait now."""
        return sum(len(events) for events in self._events.values())

    async def wait_for_end(self, job_id: str, *, until: float) -> JobRecord | None:
        """The job once it has ended, or as it stands when the wait is over; None when there is none.

        Args:
            job_id: an id as ours are.
            until: when to answer in any case, on the event loop's clock.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        loop = asyncio.get_running_loop()
        # Registered before the job is read: an end between the two is not missed.
        with self._registered(job_id) as ended:
            while True:
                ended.clear()
                async with store_deadline(self._ledger.commands.settings):
                    record = await self._ledger.get(job_id)
                left = until - loop.time()
                if record is None or record.state.terminal or left <= 0:
                    return record
                try:
                    async with asyncio.timeout(min(left, REREAD_SECONDS)):
                        await ended.wait()
                except TimeoutError:
                    continue

    @contextmanager
    def _registered(self, job_id: str) -> Iterator[asyncio.Event]:
        event = asyncio.Event()
        self._events.setdefault(job_id, set()).add(event)
        try:
            yield event
        finally:
            events = self._events[job_id]
            events.discard(event)
            if not events:
                del self._events[job_id]

    async def listen(self) -> None:
        """Subscribe, wake whoever is meant, and subscribe again after every outage; ends by cancellation."""
        while True:
            try:
                async with self._client.pubsub() as pubsub:
                    await pubsub.subscribe(self._channel)
                    await self._deliver(pubsub)
            except RedisError as error:
                log.warning("waiters.disconnected", reason=type(error).__name__, waiting=self.count)
            await asyncio.sleep(RECONNECT_SECONDS)

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
                self._wake(list(self._events))
            elif message["type"] == "message":
                self._wake(message["data"].decode().split())

    def _wake(self, job_ids: list[str]) -> None:
        for job_id in job_ids:
            for event in self._events.get(job_id, ()):
                event.set()
