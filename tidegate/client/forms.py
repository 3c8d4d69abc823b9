"""Many images in few requests, as the bulks of both clients have it: what goes into a form, and a look at many jobs.

A request an image costs either side several times as much.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic

from tidegate.client.documents import JobState
from tidegate.client.errors import ClientError, NotFound, WaitTimeout
from tidegate.client.exchanges import Exchange, Exchanges
from tidegate.client.images import ImageBytes, ImageT, ImageUrl, read_image
from tidegate.client.options import Options
from tidegate.client.outcomes import Outcome

#: Fewer than this at a time gain nothing, and an answer that is held comes sooner than one that is looked for.
LEAST_CONCURRENCY = 8
#: So many hand in, so that one reads files while the other sends.
HANDS = 2
#: Most images, and about how many bytes of them, in one form.
FORM_IMAGES = 64
FORM_BYTES = 4 * 1024 * 1024
#: How long a form waits for company: those that make room for the next images mostly end together.
LINGER_SECONDS = 0.005
#: Most ids in one look-up. Source: ``docs/api.md``.
LOOK_UP_IDS = 1000
#: Between two looks at the open jobs: the shortest while some end, half as long again after each that found none.
SHORTEST_PAUSE_SECONDS = 0.02
LONGEST_PAUSE_SECONDS = 0.5
#: How many times as long as a look a pause is at least: many jobs, or those of a busy API, are looked at less often.
PAUSE_TO_LOOK = 3

#: An image as it is sent, or why it cannot be.
Content = ImageBytes | ImageUrl | ClientError
#: What became of an image that was handed in.
Verdict = JobState | ClientError


@dataclass(frozen=True)
class OpenJob(Generic[ImageT]):
    """An image whose job has not ended.

    Attributes:
        until: when it is waited for no longer, by ``time.monotonic()``; None for as long as it takes.
    """

    image: ImageT
    state: JobState
    until: float | None


def read_or_error(image: ImageT) -> Content:
    """The image, ready to be sent, or why it cannot be read."""
    try:
        return read_image(image)
    except ClientError as error:
        return error


def sort_out(
    verdicts: Sequence[tuple[ImageT, JobState | ClientError]], *, wait: bool, until: float | None
) -> tuple[list[Outcome[ImageT]], list[OpenJob[ImageT]]]:
    """What a form's answer settles, and the jobs whose ends are to be waited for."""
    outcomes: list[Outcome[ImageT]] = []
    jobs: list[OpenJob[ImageT]] = []
    for image, verdict in verdicts:
        if isinstance(verdict, ClientError):
            outcomes.append(Outcome.of_error(image, verdict))
        elif verdict.ended or not wait:
            outcomes.append(Outcome.of_job(image, verdict))
        else:
            jobs.append(OpenJob(image, verdict, until))
    return outcomes, jobs


def has_room(form: Sequence[tuple[ImageT, Content]]) -> bool:
    """Whether another image may go into a form."""
    size = sum(len(content.content) for _, content in form if isinstance(content, ImageBytes))
    return len(form) < FORM_IMAGES and size < FORM_BYTES


def submit_form(
    exchanges: Exchanges, form: Sequence[tuple[ImageT, Content]], options: Options
) -> Exchange[list[tuple[ImageT, Verdict]]]:
    """Hand in the images of a form; what became of each."""
    told: list[tuple[ImageT, Verdict]] = []
    sent: list[tuple[ImageT, ImageBytes]] = []
    for image, content in form:
        if isinstance(content, ImageBytes):
            sent.append((image, content))
        elif isinstance(content, ImageUrl):
            # It goes into no form.
            told.append((image, (yield from _or_error(exchanges.submit(content, options)))))
        else:
            told.append((image, content))
    try:
        verdicts = yield from exchanges.submit_all([content for _, content in sent], options)
    except ClientError as error:
        verdicts = [error] * len(sent)
    return told + [(image, verdict) for (image, _), verdict in zip(sent, verdicts, strict=True)]


def _or_error(exchange: Exchange[JobState]) -> Exchange[Verdict]:
    try:
        return (yield from exchange)
    except ClientError as error:
        return error


def look_at(
    exchanges: Exchanges, jobs: Sequence[OpenJob[ImageT]]
) -> Exchange[tuple[list[Outcome[ImageT]], list[OpenJob[ImageT]]]]:
    """The outcomes of the jobs that have ended or are waited for no longer, and the others, still open."""
    states: dict[str, JobState] = {}
    ids = list(dict.fromkeys(job.state.id for job in jobs))
    try:
        for start in range(0, len(ids), LOOK_UP_IDS):
            states |= yield from exchanges.look_up(ids[start : start + LOOK_UP_IDS])
    except ClientError as error:
        return [Outcome(job.image, job.state, error) for job in jobs], []
    found = [(job, _outcome(job, states)) for job in jobs]
    return [outcome for _, outcome in found if outcome], [job for job, outcome in found if not outcome]


def _outcome(job: OpenJob[ImageT], states: Mapping[str, JobState]) -> Outcome[ImageT] | None:
    """What became of an image whose job was looked for; None while it is worth waiting."""
    state = states.get(job.state.id)
    if state is None:
        error = NotFound(f"Job {job.state.id} is no longer kept.", code="job_not_found")
        return Outcome(job.image, job.state, error)
    if state.ended:
        return Outcome.of_job(job.image, state)
    if job.until is not None and time.monotonic() >= job.until:
        return Outcome.of_error(job.image, WaitTimeout(f"Job {state.id} is still {state.status}.", job=state))
    return None


def next_pause(before: float, *, some_ended: bool, look_seconds: float) -> float:
    """Seconds until the next look.

    Args:
        before: how long the last pause was.
        some_ended: whether this look found jobs that have ended.
        look_seconds: how long this look took.
    """
    pause = SHORTEST_PAUSE_SECONDS if some_ended else min(before * 1.5, LONGEST_PAUSE_SECONDS)
    return max(pause, PAUSE_TO_LOOK * look_seconds)


def moment_after(seconds: float | None) -> float | None:
    """So many seconds from now, by ``time.monotonic()``; None for never."""
    return None if seconds is None else time.monotonic() + seconds
