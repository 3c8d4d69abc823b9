"""Every call of the API as a generator, which says what to send and how long to pause, and does neither.

So retries, long-polling and the reading of answers are written once, for :class:`~tidegate.client.Client` and
:class:`~tidegate.client.AsyncClient` alike: each carries such a generator out in its own way. It is sent the answer
to what it wanted sent, or has ApiUnreachable thrown into it where none came.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from tidegate.client.documents import JobLookup, JobPage, JobState, Model, ModelList, SubmittedBatch, SubmittedImage
from tidegate.client.errors import (
    ClientError,
    Conflict,
    ImageError,
    JobCanceled,
    ServerError,
    WaitTimeout,
    error_from_answer,
    error_from_problem,
    retry_after_seconds,
)
from tidegate.client.images import ImageBytes, ImageUrl
from tidegate.client.options import Options, form_fields
from tidegate.client.retrying import RetryPolicy

#: How long the API is asked to hold one answer. Proxies cut silent connections, often after 30 or 60 s.
HOLD_SECONDS = 25
#: Between two looks at a job, where the API names no time.
POLL_SECONDS = 1.0
#: Most jobs in a page of a list. Source: ``docs/api.md``.
PAGE_JOBS = 100


@dataclass(frozen=True)
class Send:
    """A request to be sent.

    Attributes:
        path: below the address of the API.
        hold_seconds: how long the API may hold its answer.
        body: keyword arguments of httpx that make the body.
    """

    method: str
    path: str
    hold_seconds: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    body: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pause:
    """A pause to be made."""

    seconds: float


T = TypeVar("T")
#: What a call is: it ends with a value of type ``T`` or raises a ClientError.
Exchange = Generator[Send | Pause, httpx.Response | None, T]


@dataclass(frozen=True)
class Exchanges:
    """The calls, under a policy of retries.

    Attributes:
        clock: seconds that only grow.
        chance: random numbers from 0 to 1.
    """

    policy: RetryPolicy
    clock: Callable[[], float] = time.monotonic
    chance: Callable[[], float] = random.random

    def submit(
        self, image: ImageBytes | ImageUrl, options: Options, *, key: str | None = None, hold_seconds: int = 0
    ) -> Exchange[JobState]:
        """Hand in an image; the job as it stands, at once or after the hold.

        Args:
            image: what is to be classified.
            options: as the caller gave them.
            key: by which the API knows a repetition; by default one of this submission's own.
            hold_seconds: how long the answer may be held until the job has ended; 0 for not at all.
        """
        headers = {"Idempotency-Key": _quoted(key or str(uuid.uuid4()))}
        if hold_seconds:
            headers["Prefer"] = f"wait={hold_seconds}"
        body: dict[str, Any]
        if isinstance(image, ImageUrl):
            body = {"json": {"image_url": image.url, **options}}
        else:
            body = {"files": {"image": (image.name, image.content)}, "data": form_fields(options)}
        answer = yield from self._ask(Send("POST", "/v1/jobs", hold_seconds, headers=headers, body=body))
        return _read(answer, JobState)

    def submit_all(self, images: Sequence[ImageBytes], options: Options) -> Exchange[list[JobState | ClientError]]:
        """Hand in many images in one request; what became of each, in their order.

        Those that are refused for a cause that passes are tried again, as whole requests are.
        """
        verdicts: dict[int, JobState | ClientError] = {}
        left, retries = list(range(len(images))), self._retries()
        while left:
            found = yield from self._hand_in([images[place] for place in left], options)
            verdicts |= zip(left, found, strict=True)
            busy = [error for error in found if isinstance(error, ClientError) and error.retryable]
            if len(busy) < len(left):
                # There was room for some, so the API makes room.
                retries = self._retries()
            pause = retries.pause_after(busy[0]) if busy else None
            if pause is None:
                break
            yield Pause(pause)
            left = [place for place in left if verdicts[place] in busy]
        return [verdicts[place] for place in range(len(images))]

    def look_up(self, job_ids: Sequence[str]) -> Exchange[Mapping[str, JobState]]:
        """The jobs as they stand, by id, of up to 1,000 ids; those that there are not are left out."""
        answer = yield from self._ask(Send("POST", "/v1/jobs:get", body={"json": {"ids": list(job_ids)}}))
        return {job.id: job for job in _read(answer, JobLookup).jobs}

    def list_jobs(
        self, *, status: str | None = None, model: str | None = None, cursor: str | None = None
    ) -> Exchange[JobPage]:
        """A page of the caller's jobs, the newest first; ``cursor`` is the ``next`` of the page before."""
        asked = {"status": status, "model": model, "limit": str(PAGE_JOBS), "cursor": cursor}
        params = {name: value for name, value in asked.items() if value is not None}
        return _read((yield from self._ask(Send("GET", "/v1/jobs", params=params))), JobPage)

    def classify(
        self, image: ImageBytes | ImageUrl, options: Options, *, key: str | None = None, timeout: float | None = None
    ) -> Exchange[JobState]:
        """Hand in an image and wait for the end of its job; raises as :meth:`submit` and :meth:`wait`."""
        until = None if timeout is None else self.clock() + timeout
        job = yield from self.submit(image, options, key=key, hold_seconds=self._hold(until))
        return job if job.ended else (yield from self._wait(job.id, until))

    def wait(self, job_id: str, *, timeout: float | None = None) -> Exchange[JobState]:
        """The job once it has ended.

        By answers that are held, one after the other, and not by a stream of events: it tells of the end just as soon,
        and what breaks is one request, which is sent again like any other.

        Raises:
            WaitTimeout: it has not, within that many seconds.
        """
        return self._wait(job_id, None if timeout is None else self.clock() + timeout)

    def get(self, job_id: str, *, hold_seconds: int = 0) -> Exchange[JobState]:
        """The job as it stands, at once or after the hold."""
        return _read((yield from self._look(job_id, hold_seconds)), JobState)

    def cancel(self, job_id: str) -> Exchange[JobState]:
        """The job once it is canceled, by this call or an earlier one.

        Raises:
            Conflict: it has ended otherwise; its code is ``job_finished``.
        """
        try:
            return _read((yield from self._ask(Send("DELETE", _job_path(job_id)))), JobState)
        except Conflict:
            # The answer to an earlier try may have been lost on its way.
            job = yield from self.get(job_id)
            if job.status == JobCanceled.code:
                return job
            raise

    def models(self) -> Exchange[tuple[Model, ...]]:
        """All models."""
        return _read((yield from self._ask(Send("GET", "/v1/models"))), ModelList).models

    def _wait(self, job_id: str, until: float | None) -> Exchange[JobState]:
        while True:
            asked, hold_seconds = self.clock(), self._hold(until)
            answer = yield from self._look(job_id, hold_seconds)
            job = _read(answer, JobState)
            now = self.clock()
            if job.ended:
                return job
            if until is not None and now >= until:
                raise WaitTimeout(f"Job {job.id} is still {job.status}.", job=job)
            # An answer that was held for as long as it may be asks for no pause on top.
            if not hold_seconds or now - asked < hold_seconds:
                pause = retry_after_seconds(answer) or POLL_SECONDS
                yield Pause(pause if until is None else min(pause, until - now))

    def _look(self, job_id: str, hold_seconds: int) -> Exchange[httpx.Response]:
        params = {"wait": str(hold_seconds)} if hold_seconds else {}
        return self._ask(Send("GET", _job_path(job_id), hold_seconds, params=params))

    def _hold(self, until: float | None) -> int:
        return HOLD_SECONDS if until is None else max(0, min(HOLD_SECONDS, int(until - self.clock())))

    def _ask(self, send: Send) -> Exchange[httpx.Response]:
        """Send until there is an answer that is worth having, as the policy says."""
        retries = self._retries()
        while True:
            try:
                answer = yield send
                assert answer is not None
                if answer.is_success:
                    return answer
                raise error_from_answer(answer)
            except ClientError as error:
                pause = retries.pause_after(error)
                if pause is None:
                    raise
            yield Pause(pause)

    def _hand_in(self, images: Sequence[ImageBytes], options: Options) -> Exchange[list[JobState | ClientError]]:
        try:
            answer = yield from self._ask(_batch(images, options))
        except ImageError as error:
            if len(images) == 1:
                return [error]
            # Either one of them is larger than the API takes, or all together are.
            middle = len(images) // 2
            first = yield from self._hand_in(images[:middle], options)
            return first + (yield from self._hand_in(images[middle:], options))
        items = _read(answer, SubmittedBatch).jobs
        if len(items) != len(images):
            raise ServerError(f"The API answered for {len(items)} images of {len(images)}.")
        return [_verdict(item) for item in items]

    def _retries(self) -> _Retries:
        return _Retries(self.policy, self.clock, self.chance)


@dataclass
class _Retries:
    """The tries of one request so far."""

    policy: RetryPolicy
    clock: Callable[[], float]
    chance: Callable[[], float]
    tries: int = 0
    failed_at: float | None = None

    def pause_after(self, error: ClientError) -> float | None:
        """How long to pause before the next try; None when there should be none."""
        self.tries, now = self.tries + 1, self.clock()
        self.failed_at = now if self.failed_at is None else self.failed_at
        return self.policy.pause_seconds(
            error, tries=self.tries, spent_seconds=now - self.failed_at, chance=self.chance()
        )


def _batch(images: Sequence[ImageBytes], options: Options) -> Send:
    headers = {"Idempotency-Key": _quoted(str(uuid.uuid4()))}
    files = [("image", (image.name, image.content)) for image in images]
    return Send("POST", "/v1/jobs:batch", headers=headers, body={"files": files, "data": form_fields(options)})


def _verdict(item: SubmittedImage) -> JobState | ClientError:
    """What became of one image."""
    if item.problem is not None:
        return error_from_problem(item.problem, status=item.problem.status)
    return item.job or ServerError("The API told neither of a job nor why there is none.")


def _quoted(text: str) -> str:
    """A string as a structured field. Source: RFC 8941, section 3.3.3."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _job_path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


D = TypeVar("D", JobState, ModelList, JobPage, JobLookup, SubmittedBatch)


def _read(answer: httpx.Response, kind: type[D]) -> D:
    try:
        return kind.model_validate_json(answer.content)
    except ValidationError as error:
        raise ServerError(
            f"{answer.request.url.host} answered something that is not of Tidegate's API.", status=answer.status_code
        ) from error
