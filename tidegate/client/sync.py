"""The blocking client."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from threading import Event
from types import TracebackType
from typing import Self, TypeVar, Unpack

import httpx

from tidegate.client.bulk import Bulk
from tidegate.client.connection import DEFAULT_URL, build_request, http_options, translate
from tidegate.client.documents import JobState, Model, Result
from tidegate.client.errors import ClientError, WaitTimeout
from tidegate.client.exchanges import Exchange, Exchanges, Pause
from tidegate.client.forms import LEAST_CONCURRENCY
from tidegate.client.images import Image, ImageT, read_image
from tidegate.client.options import Options
from tidegate.client.outcomes import Outcome, result_of
from tidegate.client.retrying import RetryPolicy
from tidegate.client.threads import as_they_end, through

T = TypeVar("T")


class Client:
    """Tidegate's API, for programs that wait. It may be used by many threads at a time.

    Every method raises a ClientError: see ``tidegate/client/errors.py`` for the tree. A request that the API did not
    take, because it was unreachable, busy or restarting, is tried again, no sooner than it says.

    Args:
        base_url: address of the API.
        api_key: where the API asks for one.
        retry_seconds: how long a request is tried again from its first failure; 0 gives up at once.
        transport: in place of httpx's own, for tests.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        retry_seconds: float = 30.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._http = httpx.Client(transport=transport, **http_options(base_url, api_key))
        self._exchanges = Exchanges(RetryPolicy(retry_seconds))
        self._carrier = _Carrier(self._http)

    def classify(self, image: Image, *, timeout: float | None = None, **options: Unpack[Options]) -> Result:
        """What an image shows: hand it in, and wait for the answer.

        Args:
            image: a path, the bytes of an image, or a URL.
            timeout: seconds to wait for the end of the job; None for as long as it takes.
            options: see :class:`Options`.

        Raises:
            WaitTimeout: the job goes on, and stands in the error's ``job``.
            ClientError: there is no result.
        """
        return result_of(self._carrier.run(self._exchanges.classify(read_image(image), options, timeout=timeout)))

    def submit(self, image: Image, *, idempotency_key: str | None = None, **options: Unpack[Options]) -> Job:
        """Hand in an image, and go on without waiting.

        Args:
            image: a path, the bytes of an image, or a URL.
            idempotency_key: the same key with the same image and options stands for the same job, also from another
                process; by default each submission is one of its own.
            options: see :class:`Options`.
        """
        submission = self._exchanges.submit(read_image(image), options, key=idempotency_key)
        return Job(self._carrier.run(submission), self._exchanges, self._carrier)

    def job(self, job_id: str) -> Job:
        """A job that was submitted before."""
        return Job(self._carrier.run(self._exchanges.get(job_id)), self._exchanges, self._carrier)

    def jobs(self, *, status: str | None = None, model: str | None = None) -> Iterator[Job]:
        """The jobs of this API key, the newest first: those that are open, and those that ended not long ago.

        They are asked for page by page as they are taken, so a loop may stop whenever it has seen enough.

        Args:
            status: only those in this state, such as ``queued`` or ``failed``.
            model: only those of this model.
        """
        cursor: str | None = None
        while True:
            page = self._carrier.run(self._exchanges.list_jobs(status=status, model=model, cursor=cursor))
            yield from (Job(state, self._exchanges, self._carrier) for state in page.jobs)
            cursor = page.next
            if cursor is None:
                return

    def models(self) -> tuple[Model, ...]:
        """The models, also those that cannot serve, with the reason."""
        return self._carrier.run(self._exchanges.models())

    def map(
        self,
        images: Iterable[ImageT],
        *,
        concurrency: int = 16,
        timeout: float | None = None,
        idempotency_key: Callable[[ImageT], str] | None = None,
        **options: Unpack[Options],
    ) -> Generator[Outcome[ImageT], None, None]:
        """Classify many images; outcomes come as their jobs end, not in the order of the images.

        No more than ``concurrency`` images, jobs and outcomes are held at a time, however many there are. An image
        that fails stops no other: its error is in its outcome. Whoever leaves early leaves the jobs under way to
        themselves.

        Many images go in one request, and many jobs are looked for in one, where there are no keys of the caller's
        (the API knows those for one image at a time) and ``concurrency`` is 8 or more.

        Args:
            images: taken as they are needed; a generator may make them.
            concurrency: how many are under way at a time; more than a batch of the model keeps it busy.
            timeout: seconds to wait for the end of each job.
            idempotency_key: gives the key of an image's submission, so that a run that is repeated finds the jobs of
                the earlier one; by default each is a job of its own.
            options: see :class:`Options`; the same for all.
        """
        if idempotency_key is None and concurrency >= LEAST_CONCURRENCY:
            return self._in_bulk(images, options, concurrency=concurrency, wait=True, timeout=timeout)

        def classify(image: ImageT) -> Exchange[JobState]:
            key = idempotency_key(image) if idempotency_key else None
            return self._exchanges.classify(read_image(image), options, key=key, timeout=timeout)

        return self._one_by_one(classify, images, concurrency=concurrency)

    def submit_all(
        self,
        images: Iterable[ImageT],
        *,
        concurrency: int = 64,
        idempotency_key: Callable[[ImageT], str] | None = None,
        **options: Unpack[Options],
    ) -> Generator[Outcome[ImageT], None, None]:
        """Hand in many images, and go on without waiting for their ends; as :meth:`map` but for that.

        Each outcome has the job as it was accepted, or the error for which it was not.
        """
        if idempotency_key is None and concurrency >= LEAST_CONCURRENCY:
            return self._in_bulk(images, options, concurrency=concurrency, wait=False)

        def submit(image: ImageT) -> Exchange[JobState]:
            key = idempotency_key(image) if idempotency_key else None
            return self._exchanges.submit(read_image(image), options, key=key)

        return self._one_by_one(submit, images, concurrency=concurrency)

    def _one_by_one(
        self, call: Callable[[ImageT], Exchange[JobState]], images: Iterable[ImageT], *, concurrency: int
    ) -> Generator[Outcome[ImageT], None, None]:
        left = Event()

        def outcome(image: ImageT) -> Outcome[ImageT]:
            try:
                return Outcome.of_job(image, self._carrier.run(call(image), left=left))
            except ClientError as error:
                return Outcome.of_error(image, error)

        return as_they_end(outcome, images, concurrency=concurrency, left=left)

    def _in_bulk(
        self,
        images: Iterable[ImageT],
        options: Options,
        *,
        concurrency: int,
        wait: bool,
        timeout: float | None = None,
    ) -> Generator[Outcome[ImageT], None, None]:
        left = Event()

        def carry(exchange: Exchange[T]) -> T:
            return self._carrier.run(exchange, left=left)

        crew = Bulk[ImageT](self._exchanges, carry, options, left=left, wait=wait, timeout=timeout)
        return through(crew, images, concurrency=concurrency, left=left)

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Job:
    """A job that was handed in.

    Attributes:
        state: as the API last told of it.
    """

    def __init__(self, state: JobState, exchanges: Exchanges, carrier: _Carrier) -> None:
        self.state = state
        self._exchanges = exchanges
        self._carrier = carrier

    @property
    def id(self) -> str:
        """By which :meth:`Client.job` finds it again, also from another process."""
        return self.state.id

    def refresh(self) -> JobState:
        """Ask for its state."""
        self.state = self._carrier.run(self._exchanges.get(self.id))
        return self.state

    def wait(self, timeout: float | None = None) -> Result:
        """Its result, once it has ended.

        Args:
            timeout: seconds to wait; None for as long as it takes.

        Raises:
            WaitTimeout: it has not ended in that time, and goes on.
            ClientError: it ended without a result.
        """
        if not self.state.ended:
            try:
                self.state = self._carrier.run(self._exchanges.wait(self.id, timeout=timeout))
            except WaitTimeout as error:
                self.state = error.job or self.state
                raise
        return result_of(self.state)

    def cancel(self) -> JobState:
        """End it unanswered; where it is canceled already, that is no error.

        Raises:
            Conflict: it has ended otherwise.
        """
        self.state = self._carrier.run(self._exchanges.cancel(self.id))
        return self.state


class _Left(Exception):
    """Nobody waits for this call any more."""


class _Carrier:
    """Carries calls out in the calling thread."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    def run(self, exchange: Exchange[T], *, left: Event | None = None) -> T:
        """Do what the call wants until it ends.

        Raises:
            ClientError: as the call does.
            _Left: ``left`` was set; no further request is sent.
        """
        left = left or Event()
        try:
            wanted = next(exchange)
            while not left.is_set():
                if isinstance(wanted, Pause):
                    left.wait(wanted.seconds)
                    wanted = exchange.send(None)
                    continue
                try:
                    answer = self._http.send(build_request(self._http, wanted))
                except httpx.TransportError as error:
                    wanted = exchange.throw(translate(error, self._http))
                else:
                    wanted = exchange.send(answer)
        except StopIteration as end:
            value: T = end.value
            return value
        raise _Left
