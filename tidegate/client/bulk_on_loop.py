"""The asyncio client's way with many images: tasks that hand them in by the form, and one to look at their jobs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

from tidegate.client.exchanges import Exchange, Exchanges
from tidegate.client.forms import (
    HANDS,
    LINGER_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    Content,
    OpenJob,
    has_room,
    look_at,
    moment_after,
    next_pause,
    read_or_error,
    sort_out,
    submit_form,
)
from tidegate.client.images import ImageT
from tidegate.client.options import Options
from tidegate.client.outcomes import Outcome

T = TypeVar("T")


class AsyncCarry(Protocol):
    """Carries a call out."""

    async def __call__(self, exchange: Exchange[T], /) -> T:
        """Do what the call wants until it ends; raises as it does."""
        ...


class BulkOnLoop(Generic[ImageT]):
    """Hands in images; as :class:`tidegate.client.bulk.Bulk`, with the same arguments."""

    def __init__(
        self, exchanges: Exchanges, carry: AsyncCarry, options: Options, *, wait: bool, timeout: float | None
    ) -> None:
        self._exchanges = exchanges
        self._carry = carry
        self._options = options
        self._wait = wait
        self._timeout = timeout
        self._waiting: asyncio.Queue[ImageT] = asyncio.Queue()
        self._accepted: asyncio.Queue[OpenJob[ImageT]] = asyncio.Queue()
        self._outcomes: asyncio.Queue[Outcome[ImageT] | Exception] = asyncio.Queue()

    async def outcomes(self, images: Iterable[ImageT], *, concurrency: int) -> AsyncGenerator[Outcome[ImageT], None]:
        """The outcomes of all images, so many of which are under way at a time. Whoever leaves early ends the tasks."""
        works = [self._hand_in] * HANDS + [self._look_after]
        tasks = [asyncio.ensure_future(self._labour(work)) for work in works]
        under_way = 0
        try:
            for image in images:
                self._waiting.put_nowait(image)
                under_way += 1
                if under_way == concurrency:
                    yield await self._next_done()
                    under_way -= 1
            for _ in range(under_way):
                yield await self._next_done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _next_done(self) -> Outcome[ImageT]:
        outcome = await self._outcomes.get()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _labour(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Exception as error:  # noqa: BLE001 - raised again where somebody waits
            self._outcomes.put_nowait(error)

    async def _hand_in(self) -> None:
        while True:
            first = await self._waiting.get()
            until = moment_after(self._timeout)
            await asyncio.sleep(LINGER_SECONDS)
            form = await self._form(first)
            verdicts = await self._carry(submit_form(self._exchanges, form, self._options))
            outcomes, jobs = sort_out(verdicts, wait=self._wait, until=until)
            for outcome in outcomes:
                self._outcomes.put_nowait(outcome)
            for job in jobs:
                self._accepted.put_nowait(job)

    async def _form(self, first: ImageT) -> list[tuple[ImageT, Content]]:
        """An image and those that wait behind it, as many as go into one form."""
        # A file may lie on a slow disk, which must not hold the event loop.
        form = [(first, await asyncio.to_thread(read_or_error, first))]
        while has_room(form) and not self._waiting.empty():
            image = self._waiting.get_nowait()
            form.append((image, await asyncio.to_thread(read_or_error, image)))
        return form

    async def _look_after(self) -> None:
        jobs: list[OpenJob[ImageT]] = []
        pause = SHORTEST_PAUSE_SECONDS
        while True:
            if not jobs:
                jobs.append(await self._accepted.get())
            while not self._accepted.empty():
                jobs.append(self._accepted.get_nowait())
            began = time.monotonic()
            outcomes, jobs = await self._carry(look_at(self._exchanges, jobs))
            for outcome in outcomes:
                self._outcomes.put_nowait(outcome)
            pause = next_pause(pause, some_ended=bool(outcomes), look_seconds=time.monotonic() - began)
            await asyncio.sleep(pause)
