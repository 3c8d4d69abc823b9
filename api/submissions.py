"""From an upload to a job, and from what the ledger says of it to an answer or a refusal: for one job or for many."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from anyio import to_thread
from fastapi import Request

from api.addresses import job_path
from api.callers import Caller, caller_of
from api.idempotency import idempotency_of, parse_idempotency_key
from api.pacing import queue_full_retry_seconds
from api.services import Services, services_of
from api.shared_answers import answer_key, wants_fresh
from api.uploads import Upload
from tidegate.catalogue import ModelEntry
from tidegate.commands import Admission, Verdict
from tidegate.errors import (
    DeadlineUnreachable,
    IdempotencyKeyReused,
    InvalidField,
    JobNotFound,
    QueueFull,
    RateLimited,
    TidegateError,
)
from tidegate.jobs import JobRecord, NewJob, Priority, State, new_job_id

#: An image that is larger is hashed in a thread: a megabyte takes about a millisecond.
INLINE_HASH_BYTES = 1024 * 1024

_FULL = {
    "jobs": "As many jobs of this model wait as may.",
    "all_jobs": "As many jobs wait as may.",
    "model_bytes": "The images that wait for this model take as much room as they may.",
    "bytes": "The images that wait take as much room as they may.",
}
_OVER_QUOTA = {
    "jobs": "This key has as many jobs open as it may.",
    "share": "This key has its share of the room for waiting jobs; the rest is kept for others.",
}


@dataclass(frozen=True)
class Submission:
    """How a request submits, whatever it submits.

    Attributes:
        idempotency_key: None where it may be repeated at will.
    """

    request: Request
    services: Services
    caller: Caller
    idempotency_key: str | None

    def for_part(self, place: int) -> Submission:
        """The same for one image of many, which has the idempotency key to itself."""
        key = self.idempotency_key
        return self if key is None else replace(self, idempotency_key=f"{place}:{key}")

    @property
    def fresh(self) -> bool:
        """Whether it wants no answer that was another job's."""
        return wants_fresh(self.request.headers.get("cache-control", ""))


async def submission_of(request: Request) -> Submission:
    """How a request submits; settles who sends it before anything of its body is read.

    Raises:
        Unauthorized, RateLimited: it may not.
        InvalidRequest: its idempotency key is none.
    """
    caller = await caller_of(request)
    key = parse_idempotency_key(request.headers.getlist("idempotency-key"))
    return Submission(request, services_of(request), caller, key)


async def new_job(submission: Submission, upload: Upload, model: ModelEntry) -> NewJob:
    """The job that a submission asks for.

    Raises:
        InvalidField: the model has fewer classes than are to be named, or webhooks are not set up.
        UrlNotAllowed: a URL leads where Tidegate does not go.
    """
    if len(upload.image) <= INLINE_HASH_BYTES:
        return _new_job(submission, upload, model)
    return await to_thread.run_sync(_new_job, submission, upload, model, limiter=submission.services.hashing)


def _new_job(submission: Submission, upload: Upload, model: ModelEntry) -> NewJob:
    services, options = submission.services, upload.options
    if options.top_k is not None and options.top_k > model.classes:
        problem = ("#/top_k", f"The model {model.name} tells {model.classes} classes apart.")
        raise InvalidField("Some options are not right.", problems=(problem,))
    job_id = new_job_id()
    key, tenant = submission.idempotency_key, submission.caller.tenant
    job = NewJob(
        id=job_id,
        model=model.name,
        image=upload.image,
        image_at=services.destinations.image_at(upload.image_url) if upload.image_url is not None else None,
        version=options.version,
        top_k=options.top_k or min(NewJob.top_k, model.classes),
        regions=options.boxes,
        priority=Priority(options.priority),
        expires_in_ms=options.expires_in * 1000 if options.expires_in is not None else None,
        metadata=options.metadata,
        webhook=services.destinations.webhook(options, path=job_path(submission.request, job_id), client=tenant),
        tenant=tenant,
        idempotency=idempotency_of(key, upload) if key is not None else None,
    )
    seconds = services.settings.result_cache_seconds
    if not seconds or submission.fresh or job.image_at is not None:
        return job
    return replace(job, answer_key=answer_key(job, model, seconds=seconds))


async def record_of(job: NewJob, admission: Admission, services: Services) -> JobRecord:
    """The job that stands for a submission, as it is now.

    Raises:
        QueueFull, RateLimited, DeadlineUnreachable, IdempotencyKeyReused: it was not accepted.
        JobNotFound: it was accepted long ago under its idempotency key, and is no longer kept.
    """
    if admission.verdict is Verdict.ACCEPTED:
        assert admission.accepted_ms is not None
        # It need not be read: this is all that there is to it so far.
        return JobRecord(
            id=job.id,
            model=job.model,
            state=State.QUEUED,
            created_ms=admission.accepted_ms,
            version=job.version,
            options={"metadata": job.metadata},
            deadline_ms=admission.deadline_ms,
            tenant=job.tenant,
        )
    if admission.verdict in (Verdict.ANSWERED, Verdict.REPLAYED):
        record = await services.ledger.get(admission.job_id)
        if record is None:
            raise JobNotFound("The job that was submitted under this Idempotency-Key has ended and is no longer kept.")
        return record
    raise refusal(admission)


def refusal(admission: Admission) -> TidegateError:
    """Why a job was not accepted."""
    match admission.verdict:
        case Verdict.REUSED:
            return IdempotencyKeyReused("Another request was sent under this Idempotency-Key within the last day.")
        case Verdict.TOO_LATE:
            return DeadlineUnreachable(
                "So many jobs wait that this one would not be answered before its deadline.",
                retry_after_seconds=admission.late_ms / 1000,
            )
        case Verdict.OVER_QUOTA:
            return RateLimited(
                _OVER_QUOTA[admission.full_of], policies=("jobs",), retry_after_seconds=_room_in_seconds(admission)
            )
        case _:
            return QueueFull(_FULL[admission.full_of], retry_after_seconds=_room_in_seconds(admission))


def _room_in_seconds(admission: Admission) -> float:
    chance = random.random()  # noqa: S311 - it spreads clients, and hides nothing
    return queue_full_retry_seconds(admission.depth, admission.drain_rate, chance=chance)
