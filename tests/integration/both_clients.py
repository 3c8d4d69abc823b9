"""The two clients behind one face, so that every promise is tested on both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from tidegate.client import AsyncClient, AsyncJob, Client, Image, JobState, Model, Outcome, Result
from tidegate.client.images import ImageT

T = TypeVar("T")


class AnyJob(Protocol):
    """A job of either client."""

    @property
    def id(self) -> str:
        """See ``Job.id``."""
        ...

    @property
    def state(self) -> JobState:
        """See ``Job``."""
        ...

    def refresh(self) -> JobState:
        """See ``Job.refresh``."""
        ...

    def wait(self, timeout: float | None = None) -> Result:
        """See ``Job.wait``."""
        ...

    def cancel(self) -> JobState:
        """See ``Job.cancel``."""
        ...


class AnyClient(Protocol):
    """Either client."""

    def classify(self, image: Image, *, timeout: float | None = None, **options: Any) -> Result:
        """See ``Client.classify``."""
        ...

    def submit(self, image: Image, *, idempotency_key: str | None = None, **options: Any) -> AnyJob:
        """See ``Client.submit``."""
        ...

    def job(self, job_id: str) -> AnyJob:
        """See ``Client.job``."""
        ...

    def jobs(self, *, status: str | None = None, model: str | None = None) -> Iterator[AnyJob]:
        """See ``Client.jobs``."""
        ...

    def models(self) -> tuple[Model, ...]:
        """See ``Client.models``."""
        ...

    def map(
        self, images: Iterable[ImageT], *, concurrency: int = 16, **options: Any
    ) -> Generator[Outcome[ImageT], None, None]:
        """See ``Client.map``."""
        ...

    def submit_all(
        self, images: Iterable[ImageT], *, concurrency: int = 64, **options: Any
    ) -> Generator[Outcome[ImageT], None, None]:
        """See ``Client.submit_all``."""
        ...

    def __enter__(self) -> Self:
        """Use it."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        ...


class _JobOnLoop:
    def __init__(self, runner: asyncio.Runner, job: AsyncJob) -> None:
        self._runner = runner
        self._job = job

    @property
    def id(self) -> str:
        return self._job.id

    @property
    def state(self) -> JobState:
        return self._job.state

    def refresh(self) -> JobState:
        return self._runner.run(self._job.refresh())

    def wait(self, timeout: float | None = None) -> Result:
        return self._runner.run(self._job.wait(timeout))

    def cancel(self) -> JobState:
        return self._runner.run(self._job.cancel())


class ClientOnLoop:
    """An :class:`AsyncClient`, each call of which runs an event loop until it is done."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*arguments, **options)

    def classify(self, image: Image, *, timeout: float | None = None, **options: Any) -> Result:
        """See ``Client.classify``."""
        return self._runner.run(self._client.classify(image, timeout=timeout, **options))

    def submit(self, image: Image, *, idempotency_key: str | None = None, **options: Any) -> AnyJob:
        """See ``Client.submit``."""
        job = self._runner.run(self._client.submit(image, idempotency_key=idempotency_key, **options))
        return _JobOnLoop(self._runner, job)

    def job(self, job_id: str) -> AnyJob:
        """See ``Client.job``."""
        return _JobOnLoop(self._runner, self._runner.run(self._client.job(job_id)))

    def models(self) -> tuple[Model, ...]:
        """See ``Client.models``."""
        return self._runner.run(self._client.models())

    def jobs(self, *, status: str | None = None, model: str | None = None) -> Iterator[AnyJob]:
        """See ``Client.jobs``."""
        for job in self._each(self._client.jobs(status=status, model=model)):
            yield _JobOnLoop(self._runner, job)

    def map(
        self, images: Iterable[ImageT], *, concurrency: int = 16, **options: Any
    ) -> Generator[Outcome[ImageT], None, None]:
        """See ``Client.map``."""
        return self._each(self._client.map(images, concurrency=concurrency, **options))

    def submit_all(
        self, images: Iterable[ImageT], *, concurrency: int = 64, **options: Any
    ) -> Generator[Outcome[ImageT], None, None]:
        """See ``Client.submit_all``."""
        return self._each(self._client.submit_all(images, concurrency=concurrency, **options))

    def _each(self, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        try:
            while True:
                try:
                    yield self._runner.run(_next(items))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(items.aclose())

    def __enter__(self) -> Self:
        """Use it."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self._runner.run(self._client.aclose())
        self._runner.close()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


#: By name, what makes each of them.
CLIENTS: dict[str, Any] = {"Client": Client, "AsyncClient": ClientOnLoop}
