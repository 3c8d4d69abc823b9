"""The client for asyncio; what its methods promise is told in ``tidegate/client/sync.py``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from tidegate.client.bulk_on_loop import BulkOnLoop
from tidegate.client.connection import DEFAULT_URL, build_request, http_options, translate
from tidegate.client.documents import JobState, Model, Result
from tidegate.client.errors import ClientError, WaitTimeout
from tidegate.client.exchanges import Exchange, Exchanges, Pause
from tidegate.client.forms import LEAST_CONCURRENCY
from tidegate.client.images import Image, ImageBytes, ImageT, ImageUrl, read_image
from tidegate.client.options import Options
from tidegate.client.outcomes import Outcome, result_of
from tidegate.client.retrying import RetryPolicy

T = TypeVar("T")
Item = TypeVar("Item")
Done = TypeVar("Done")


class AsyncClient:
    """Tidegate's API on asyncio: as :class:`~tidegate.client.Client`, with the same arguments and errors."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        retry_seconds: float = 30.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(transport=transport, **http_options(base_url, api_key))
        self._exchanges = Exchanges(RetryPolicy(retry_seconds))
        self._carrier = _Carrier(self._http)

    async def classify(
        self,
        image: Image,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - when it is over, the caller learns which job goes on
        **options: Unpack[Options],
    ) -> Result:
        """What an image shows: hand it in, and wait for the answer; see :meth:`Client.classify`."""
        sent = await _read(image)
        return result_of(await self._carrier.run(self._exchanges.classify(sent, options, timeout=timeout)))

    async def submit(self, image: Image, *, idempotency_key: str | None = None, **options: Unpack[Options]) -> AsyncJob:
        """Hand in an image, and go on without waiting; see :meth:`Client.submit`."""
        submission = self._exchanges.submit(await _read(image), options, key=idempotency_key)
        return AsyncJob(await self._carrier.run(submission), self._exchanges, self._carrier)

    async def job(self, job_id: str) -> AsyncJob:
        """A job that was submitted before."""
        return AsyncJob(await self._carrier.run(self._exchanges.get(job_id)), self._exchanges, self._carrier)

    async def jobs(self, *, status: str | None = None, model: str | None = None) -> AsyncGenerator[AsyncJob, None]:
        """The jobs of this API key, the newest first; see :meth:`Client.jobs`."""
        cursor: str | None = None
        while True:
            page = await self._carrier.run(self._exchanges.list_jobs(status=status, model=model, cursor=cursor))
            for state in page.jobs:
                yield AsyncJob(state, self._exchanges, self._carrier)
            cursor = page.next
            if cursor is None:
                return

    async def models(self) -> tuple[Model, ...]:
        """The models, also those that cannot serve, with the reason."""
        return await self._carrier.run(self._exchanges.models())

    def map(
        self,
        images: Iterable[ImageT],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        idempotency_key: Callable[[ImageT], str] | None = None,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Outcome[ImageT], None]:
        """Classify many images; see :meth:`Client.map`."""
        if idempotency_key is None and concurrency >= LEAST_CONCURRENCY:
            bulk = BulkOnLoop[ImageT](self._exchanges, self._carrier.run, options, wait=True, timeout=timeout)
            return bulk.outcomes(images, concurrency=concurrency)

        async def classify(image: ImageT) -> Exchange[JobState]:
            key = idempotency_key(image) if idempotency_key else None
            return self._exchanges.classify(await _read(image), options, key=key, timeout=timeout)

        return self._one_by_one(classify, images, concurrency=concurrency)

    def submit_all(
        self,
        images: Iterable[ImageT],
        *,
        concurrency: int = 64,
        idempotency_key: Callable[[ImageT], str] | None = None,
        **options: Unpack[Options],
    ) -> AsyncGenerator[Outcome[ImageT], None]:
        """Hand in many images, and go on without waiting for their ends; see :meth:`Client.submit_all`."""
        if idempotency_key is None and concurrency >= LEAST_CONCURRENCY:
            bulk = BulkOnLoop[ImageT](self._exchanges, self._carrier.run, options, wait=False, timeout=None)
            return bulk.outcomes(images, concurrency=concurrency)

        async def submit(image: ImageT) -> Exchange[JobState]:
            key = idempotency_key(image) if idempotency_key else None
            return self._exchanges.submit(await _read(image), options, key=key)

        return self._one_by_one(submit, images, concurrency=concurrency)

    def _one_by_one(
        self, call: Callable[[ImageT], Awaitable[Exchange[JobState]]], images: Iterable[ImageT], *, concurrency: int
    ) -> AsyncGenerator[Outcome[ImageT], None]:
        async def outcome(image: ImageT) -> Outcome[ImageT]:
            try:
                return Outcome.of_job(image, await self._carrier.run(await call(image)))
            except ClientError as error:
                return Outcome.of_error(image, error)

        return as_they_end(outcome, images, concurrency=concurrency)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncJob:
    """A job that was handed in: as :class:`~tidegate.client.Job`.

    Attributes:
        state: as the API last told of it.
    """

    def __init__(self, state: JobState, exchanges: Exchanges, carrier: _Carrier) -> None:
        self.state = state
        self._exchanges = exchanges
        self._carrier = carrier

    @property
    def id(self) -> str:
        """By which :meth:`AsyncClient.job` finds it again, also from another process."""
        return self.state.id

    async def refresh(self) -> JobState:
        """Ask for its state."""
        self.state = await self._carrier.run(self._exchanges.get(self.id))
        return self.state

    async def wait(self, timeout: float | None = None) -> Result:  # noqa: ASYNC109 - as above
        """Its result, once it has ended; see :meth:`Job.wait`."""
        if not self.state.ended:
            try:
                self.state = await self._carrier.run(self._exchanges.wait(self.id, timeout=timeout))
            except WaitTimeout as error:
                self.state = error.job or self.state
                raise
        return result_of(self.state)

    async def cancel(self) -> JobState:
        """End it unanswered; see :meth:`Job.cancel`."""
        self.state = await self._carrier.run(self._exchanges.cancel(self.id))
        return self.state


class _Carrier:
    """Carries calls out in the calling task; a cancellation ends them at once."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def run(self, exchange: Exchange[T]) -> T:
        """Do what the call wants until it ends; raises as the call does."""
        try:
            wanted = next(exchange)
            while True:
                if isinstance(wanted, Pause):
                    await asyncio.sleep(wanted.seconds)
                    wanted = exchange.send(None)
                    continue
                try:
                    answer = await self._http.send(build_request(self._http, wanted))
                except httpx.TransportError as error:
                    wanted = exchange.throw(translate(error, self._http))
                else:
                    wanted = exchange.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value


async def _read(image: Image) -> ImageBytes | ImageUrl:
    """A file may lie on a slow disk, which must not hold the event loop."""
    return await asyncio.to_thread(read_image, image)


async def as_they_end(
    work: Callable[[Item], Awaitable[Done]], items: Iterable[Item], *, concurrency: int
) -> AsyncGenerator[Done, None]:
    """Do the work on every item, on so many at a time, and give what comes of it as it comes.

    Whoever leaves early cancels what is under way.
    """
    running: set[asyncio.Task[Done]] = set()

    async def next_done() -> set[asyncio.Task[Done]]:
        done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        running.difference_update(done)
        return done

    try:
        for item in items:
            running.add(asyncio.ensure_future(work(item)))
            if len(running) >= concurrency:
                for task in await next_done():
                    yield task.result()
        while running:
            for task in await next_done():
                yield task.result()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
