"""Jobs: submitted, asked for, canceled."""

from __future__ import annotations

import asyncio
import random
from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.deadline import store_deadline
from api.disconnect import unless_gone
from api.documentation import POLL_HEADERS, SUBMISSION, SUBMISSION_HEADERS, problems
from api.pacing import POLL_HINT_SECONDS, queue_full_retry_seconds
from api.prefer import MAX_WAIT_SECONDS, Preferences, parse_prefer
from api.services import Services, ServicesOfApp
from api.uploads import Upload
from tidegate.catalogue import ModelEntry
from tidegate.commands import Admission
from tidegate.documents import Job
from tidegate.errors import (
    ImageCorrupt,
    ImageTooLarge,
    InvalidBase64,
    InvalidField,
    InvalidRequest,
    JobFinished,
    JobNotFound,
    ModelNotFound,
    NoModelsYet,
    QueueFull,
    StoreUnavailable,
    UnsupportedFormat,
)
from tidegate.jobs import JobRecord, NewJob, Priority, State, is_job_id, new_job_id

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class WaitQuery(BaseModel):
    """How long to hold the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    wait: int = Field(
        0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to hold the answer, unless the job ends before."
    )


@router.post(
    "",
    operation_id="submit_job",
    status_code=202,
    responses={
        202: {"description": "Accepted, and not ended yet.", "headers": {**SUBMISSION_HEADERS, **POLL_HEADERS}},
        200: {"model": Job, "description": "Accepted, and ended within the wait.", "headers": SUBMISSION_HEADERS},
        **problems(
            InvalidRequest,
            ModelNotFound,
            ImageTooLarge,
            UnsupportedFormat,
            InvalidField,
            InvalidBase64,
            ImageCorrupt,
            QueueFull,
            NoModelsYet,
            StoreUnavailable,
        ),
    },
    openapi_extra=SUBMISSION,
)
async def submit_job(request: Request, response: Response, services: ServicesOfApp) -> Job:
    """Submit one image to be classified: as plain bytes, as a part of a form, or as base64 in JSON.

    The answer is a job, at once. With `Prefer: wait=N` it is held for up to N seconds, until the job has ended.
    """
    received = asyncio.get_running_loop().time()
    preferences = parse_prefer(request.headers.getlist("prefer"))
    upload = await services.uploads.read(request)
    async with store_deadline(services.settings):
        model = await services.models.for_jobs(upload.options.model)
        job = _new_job(upload, model)
        record = _accepted(job, await services.intake.submit(job))
    log.info("job.accepted", job_id=job.id, model=job.model, bytes=len(job.image), priority=job.priority)
    del upload, job
    if preferences.wait_seconds:
        record = await _end_within(request, services, record, until=received + preferences.wait_seconds)
    _say_how_it_was_preferred(response, preferences)
    response.headers["Location"] = _url(request, record.id)
    return _answer(request, response, record, pending_status=202)


@router.get(
    "/{job_id}",
    operation_id="get_job",
    responses={200: {"headers": POLL_HEADERS}, **problems(JobNotFound, InvalidField, StoreUnavailable)},
)
async def get_job(
    job_id: str,
    query: Annotated[WaitQuery, Query()],
    request: Request,
    response: Response,
    services: ServicesOfApp,
) -> Job:
    """The job as it stands; with `wait`, as it stands when it has ended or the wait is over."""
    if not is_job_id(job_id):
        raise _no_such_job()
    if query.wait:
        until = asyncio.get_running_loop().time() + query.wait
        record = await unless_gone(request, services.waiters.wait_for_end(job_id, until=until))
    else:
        record = await _read(services, job_id)
    if record is None:
        raise _no_such_job()
    return _answer(request, response, record, pending_status=200)


@router.delete("/{job_id}", operation_id="cancel_job", responses=problems(JobNotFound, JobFinished, StoreUnavailable))
async def cancel_job(job_id: str, request: Request, response: Response, services: ServicesOfApp) -> Job:
    """Cancel a job that has not ended. One that runs is not interrupted, but its answer is dropped."""
    if not is_job_id(job_id):
        raise _no_such_job()
    async with store_deadline(services.settings):
        (outcome,) = await services.ledger.run(services.ledger.commands.cancel([job_id]))
        record = await services.ledger.get(job_id)
    if outcome == "unknown" or record is None:
        raise _no_such_job()
    if outcome != State.CANCELED:
        raise JobFinished(f"The job is over: it {_ENDS[record.state]}.")
    log.info("job.canceled", job_id=job_id, model=record.model)
    return _answer(request, response, record, pending_status=200)


_ENDS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "was canceled",
    State.EXPIRED: "expired",
}


def _no_such_job() -> JobNotFound:
    return JobNotFound("There is no such job, or it ended long ago and is no longer kept.")


def _new_job(upload: Upload, model: ModelEntry) -> NewJob:
    options = upload.options
    if options.top_k is not None and options.top_k > model.classes:
        problem = ("#/top_k", f"The model {model.name} tells {model.classes} classes apart.")
        raise InvalidField("Some options are not right.", problems=(problem,))
    return NewJob(
        id=new_job_id(),
        model=model.name,
        image=upload.image,
        version=options.version,
        top_k=options.top_k or min(NewJob.top_k, model.classes),
        priority=Priority(options.priority),
        expires_in_ms=options.expires_in * 1000 if options.expires_in is not None else None,
        metadata=options.metadata,
    )


def _accepted(job: NewJob, admission: Admission) -> JobRecord:
    """The record of a job that was just accepted, which need not be read for it."""
    if admission.ticket is None:
        chance = random.random()  # noqa: S311 - it spreads clients, and hides nothing
        retry = queue_full_retry_seconds(admission.depth, admission.drain_rate, chance=chance)
        raise QueueFull(_FULL[admission.full_of], retry_after_seconds=retry)
    ticket = admission.ticket
    return JobRecord(
        id=job.id,
        model=job.model,
        state=State.QUEUED,
        created_ms=ticket.issued_ms,
        version=job.version,
        options={"metadata": job.metadata},
        deadline_ms=ticket.deadline_ms,
    )


_FULL = {
    "jobs": "As many jobs of this model wait as may.",
    "all_jobs": "As many jobs wait as may.",
    "model_bytes": "The images that wait for this model take as much room as they may.",
    "bytes": "The images that wait take as much room as they may.",
}


async def _end_within(request: Request, services: Services, record: JobRecord, *, until: float) -> JobRecord:
    """The job when it has ended or the wait is over; it is accepted, so no outage may make a refusal of it."""
    try:
        ended = await unless_gone(request, services.waiters.wait_for_end(record.id, until=until))
    except StoreUnavailable:
        return record
    return ended or record


async def _read(services: Services, job_id: str) -> JobRecord | None:
    async with store_deadline(services.settings):
        return await services.ledger.get(job_id)


def _say_how_it_was_preferred(response: Response, preferences: Preferences) -> None:
    response.headers["Vary"] = "Prefer"
    if preferences.applied:
        response.headers["Preference-Applied"] = preferences.applied


def _url(request: Request, job_id: str) -> str:
    """Where the job is, as a path: a host would be wrong behind most proxies, but their prefix belongs to it."""
    return request.url_for("get_job", job_id=job_id).path


def _answer(request: Request, response: Response, record: JobRecord, *, pending_status: int) -> Job:
    if record.state.terminal:
        response.status_code = 200
    else:
        response.status_code = pending_status
        response.headers["Retry-After"] = str(POLL_HINT_SECONDS)
    # A job changes until it ends, and is its client's own business: nobody in between may keep it.
    response.headers["Cache-Control"] = "no-store"
    return Job.from_record(record, url=_url(request, record.id))
