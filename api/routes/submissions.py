"""Jobs, submitted: one at a time in any form, or many in one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog
from fastapi import APIRouter, Request, Response

from api.addresses import job_path
from api.answers import job_answer, json_answer, json_array, show_json
from api.body_room import let_go_of_body
from api.deadline import store_deadline
from api.disconnect import unless_gone
from api.documentation import BATCH_SUBMISSION, POLL_HEADERS, SUBMISSION, SUBMISSION_HEADERS, problems
from api.errors import problem_of
from api.plain_route import PlainRoute
from api.prefer import Preferences, parse_prefer
from api.schemas import SubmittedBatch, SubmittedImage
from api.services import Services
from api.submissions import Submission, new_job, record_of, submission_of
from api.uploads import Upload
from tidegate.catalogue import ModelEntry
from tidegate.commands import Admission, Verdict
from tidegate.documents import Job
from tidegate.errors import (
    DeadlineUnreachable,
    IdempotencyKeyReused,
    ImageCorrupt,
    ImageTooLarge,
    InvalidBase64,
    InvalidField,
    InvalidRequest,
    ModelNotFound,
    NoModelsYet,
    QueueFull,
    RateLimited,
    StoreUnavailable,
    TidegateError,
    Unauthorized,
    UnsupportedFormat,
    UploadsFull,
    UploadTimeout,
    UrlNotAllowed,
)
from tidegate.jobs import JobRecord, NewJob

log = structlog.get_logger(__name__)
router = APIRouter(tags=["jobs"], route_class=PlainRoute)


#: What can be wrong with any submission.
_REFUSALS = (
    InvalidRequest,
    Unauthorized,
    ModelNotFound,
    UploadTimeout,
    ImageTooLarge,
    UnsupportedFormat,
    InvalidField,
    UrlNotAllowed,
    RateLimited,
    UploadsFull,
    NoModelsYet,
    StoreUnavailable,
)
#: What can be wrong with one image of a submission, and does not concern the others.
_REFUSALS_OF_ONE = (ImageCorrupt, IdempotencyKeyReused, QueueFull, DeadlineUnreachable)


@router.post(
    "/v1/jobs",
    operation_id="submit_job",
    status_code=202,
    response_model=Job,
    responses={
        202: {"description": "Accepted, and not ended yet.", "headers": {**SUBMISSION_HEADERS, **POLL_HEADERS}},
        200: {"model": Job, "description": "Accepted, and ended within the wait.", "headers": SUBMISSION_HEADERS},
        **problems(*_REFUSALS, InvalidBase64, *_REFUSALS_OF_ONE),
    },
    openapi_extra=SUBMISSION,
)
async def submit_job(request: Request) -> Response:
    """Submit one image to be classified: as plain bytes, as a part of a form, as base64 in JSON, or by its URL.

    The answer is a job, at once. With `Prefer: wait=N` it is held for up to N seconds, until the job has ended.
    """
    received = asyncio.get_running_loop().time()
    submission = await submission_of(request)
    services = submission.services
    preferences = parse_prefer(request.headers.getlist("prefer"))
    upload = await services.uploads.read(request)
    async with store_deadline(services.settings):
        model = await services.models.for_jobs(upload.options.model)
        job = await new_job(submission, upload, model)
        admission = await services.intake.submit(job)
        record = await record_of(job, admission, services)
    _log_accepted(job, admission.verdict)
    del upload, job
    let_go_of_body(request.scope)
    if preferences.wait_seconds and not record.state.terminal:
        record = await _end_within(request, services, record, until=received + preferences.wait_seconds)
    headers = _headers(request, record, preferences, admission.verdict)
    return job_answer(request, record, pending_status=202, headers=headers)


@router.post(
    "/v1/jobs:batch",
    operation_id="submit_jobs",
    status_code=202,
    response_model=SubmittedBatch,
    responses=problems(*_REFUSALS),
    openapi_extra=BATCH_SUBMISSION,
)
async def submit_jobs(request: Request) -> Response:
    """Submit many images in one form, with the same options for all.

    The answer has an item for each image, in their order: its job, or why there is none. One that cannot be accepted
    does not concern the others. Under an `Idempotency-Key` each image has the key to itself, by its place.
    """
    submission = await submission_of(request)
    services = submission.services
    uploads = await services.uploads.read_many(request)
    async with store_deadline(services.settings):
        model = await services.models.for_jobs(uploads.options.model)
        made = [await _made(submission.for_part(place), upload, model) for place, upload in enumerate(uploads.each)]
        jobs = [job for job in made if isinstance(job, NewJob)]
        admitted = dict(zip((job.id for job in jobs), await services.intake.submit_all(jobs), strict=True))
        items = [await _item(job, admitted, services) for job in made]
    accepted = sum(isinstance(item, JobRecord) for item in items)
    log.info("jobs.accepted", accepted=accepted, of=len(items), model=model.name)
    body = b'{"jobs":' + json_array(_item_json(request, item) for item in items) + b"}"
    return json_answer(request, body, status=202)


async def _made(submission: Submission, upload: Upload | TidegateError, model: ModelEntry) -> NewJob | TidegateError:
    """The job of one image, or why there is none; what is wrong with all of them is raised."""
    return upload if isinstance(upload, TidegateError) else await new_job(submission, upload, model)


async def _item(
    job: NewJob | TidegateError, admitted: Mapping[str, Admission], services: Services
) -> JobRecord | TidegateError:
    """What became of one image."""
    if isinstance(job, TidegateError):
        return job
    try:
        return await record_of(job, admitted[job.id], services)
    except TidegateError as error:
        return error


def _item_json(request: Request, item: JobRecord | TidegateError) -> bytes:
    """As :class:`SubmittedImage` has it."""
    if isinstance(item, JobRecord):
        return b'{"job":' + show_json(request, item) + b',"problem":null}'
    return SubmittedImage(problem=problem_of(item)).model_dump_json(by_alias=True).encode()


async def _end_within(request: Request, services: Services, record: JobRecord, *, until: float) -> JobRecord:
    """The job when it has ended or the wait is over; it is accepted, so no outage may make a refusal of it."""
    try:
        ended = await unless_gone(request, services.waiters.wait_for_end(record.id, tenant=record.tenant, until=until))
    except StoreUnavailable:
        return record
    return ended or record


def _headers(request: Request, record: JobRecord, preferences: Preferences, verdict: Verdict) -> dict[str, str]:
    headers = {"Location": job_path(request, record.id), "Vary": "Prefer"}
    if preferences.applied:
        headers["Preference-Applied"] = preferences.applied
    if verdict is Verdict.REPLAYED:
        headers["Idempotent-Replayed"] = "true"
    return headers


def _log_accepted(job: NewJob, verdict: Verdict) -> None:
    log.info("job.accepted", job_id=job.id, model=job.model, bytes=len(job.image), priority=job.priority, how=verdict)
