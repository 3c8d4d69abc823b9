"""Jobs, asked for by their ids: one, also until it has ended, or many."""

from __future__ import annotations

import asyncio

import orjson
from fastapi import APIRouter, Request, Response

from api.answers import job_answer, json_answer, json_array, show_json
from api.callers import caller_of
from api.deadline import store_deadline
from api.disconnect import unless_gone
from api.documentation import LOOKUP, ONE_JOB, POLL_HEADERS, problems
from api.lookups import read_job_ids, wait_seconds
from api.ownership import check_job_id, owned
from api.plain_route import PlainRoute
from api.schemas import JobLookup
from api.services import services_of
from tidegate.documents import Job
from tidegate.errors import (
    ImageTooLarge,
    InvalidField,
    InvalidRequest,
    JobNotFound,
    RateLimited,
    StoreUnavailable,
    Unauthorized,
    UploadTimeout,
)

router = APIRouter(tags=["jobs"], route_class=PlainRoute)

#: Jobs that are made into JSON before other requests have their turn: some milliseconds' worth.
CHUNK_JOBS = 50


@router.post(
    "/v1/jobs:get",
    operation_id="get_jobs",
    responses={
        200: {"model": JobLookup, "description": "Those that there are."},
        **problems(
            InvalidRequest, Unauthorized, UploadTimeout, ImageTooLarge, InvalidField, RateLimited, StoreUnavailable
        ),
    },
    openapi_extra=LOOKUP,
)
async def get_jobs(request: Request) -> Response:
    """Up to 1,000 jobs at once, as they stand, without their places. Others' jobs are missing, as are unknown ones."""
    services = services_of(request)
    caller = await caller_of(request)
    job_ids = await read_job_ids(request)
    found: list[bytes] = []
    missing: list[str] = []
    for start in range(0, len(job_ids), CHUNK_JOBS):
        chunk = job_ids[start : start + CHUNK_JOBS]
        async with store_deadline(services.settings):
            records = await services.ledger.get_many(chunk)
        for job_id, record in zip(chunk, records, strict=True):
            if record is None or record.tenant != caller.tenant:
                missing.append(job_id)
            else:
                found.append(show_json(request, record))
    return json_answer(request, b'{"jobs":' + json_array(found) + b',"missing":' + orjson.dumps(missing) + b"}")


@router.get(
    "/v1/jobs/{job_id}",  # noqa: FAST003 - a plain route takes it from the request
    operation_id="get_job",
    response_model=Job,
    responses={
        200: {"headers": POLL_HEADERS},
        **problems(Unauthorized, JobNotFound, InvalidField, RateLimited, StoreUnavailable),
    },
    openapi_extra=ONE_JOB,
)
async def get_job(request: Request) -> Response:
    """The job as it stands; with `wait`, as it stands when it has ended or the wait is over."""
    services = services_of(request)
    caller = await caller_of(request)
    job_id: str = request.path_params["job_id"]
    check_job_id(job_id)
    wait = wait_seconds(request)
    if wait:
        until = asyncio.get_running_loop().time() + wait
        ended = services.waiters.wait_for_end(job_id, tenant=caller.tenant, until=until)
        record = await unless_gone(request, ended)
    else:
        async with store_deadline(services.settings):
            record = await services.readings.job(job_id)
    return job_answer(request, owned(record, caller))
