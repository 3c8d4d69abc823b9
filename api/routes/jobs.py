"""Jobs: asked for, one or many, listed, watched and canceled; each by whom it belongs to."""

from __future__ import annotations

import asyncio
from typing import Annotated

import orjson
import structlog
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.addresses import answer, show
from api.callers import CallerOfRequest
from api.deadline import store_deadline
from api.disconnect import unless_gone
from api.documentation import EVENTS, LAST_EVENT_ID, LOOKUP, POLL_HEADERS, problems
from api.event_stream import EventStream, JobEvents, event_id
from api.lookups import read_job_ids
from api.options import MAX_NAME_CHARACTERS
from api.ownership import OwnJob, no_such_job
from api.prefer import MAX_WAIT_SECONDS
from api.schemas import JobList, JobLookup
from api.services import ServicesOfApp
from tidegate.documents import Job
from tidegate.errors import (
    ImageTooLarge,
    InvalidField,
    InvalidRequest,
    JobFinished,
    JobNotFound,
    RateLimited,
    StoreUnavailable,
    Unauthorized,
    UploadTimeout,
)
from tidegate.jobs import State
from tidegate.own_jobs import Mark, list_own

log = structlog.get_logger(__name__)
router = APIRouter(tags=["jobs"])

MAX_PAGE_JOBS = 100
#: Jobs that are made into JSON before other requests have their turn: some milliseconds' worth.
CHUNK_JOBS = 50


class WaitQuery(BaseModel):
    """How long to hold the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    wait: int = Field(
        0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to hold the answer, unless the job ends before."
    )


class ListQuery(BaseModel):
    """Which of its jobs a caller wants to see."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    status: State | None = Field(None, description="Only those in this state.")
    model: str | None = Field(
        None, min_length=1, max_length=MAX_NAME_CHARACTERS, description="Only those of this model."
    )
    limit: int = Field(20, ge=1, le=MAX_PAGE_JOBS, description="Most jobs in the answer.")
    cursor: str | None = Field(None, max_length=64, description="`next` of the page before.")


@router.get(
    "/v1/jobs", operation_id="list_jobs", responses=problems(Unauthorized, InvalidField, RateLimited, StoreUnavailable)
)
async def list_jobs(
    query: Annotated[ListQuery, Query()],
    request: Request,
    response: Response,
    services: ServicesOfApp,
    caller: CallerOfRequest,
) -> JobList:
    """The caller's own jobs, the newest first, in pages: those that are open, and those that ended not long ago."""
    after = Mark.parse(query.cursor) if query.cursor is not None else None
    if query.cursor is not None and after is None:
        raise InvalidField("The cursor is none.", problems=(("#/cursor", "It must be `next` of an earlier answer."),))
    async with store_deadline(services.settings):
        models = [query.model] if query.model else list(await services.models.all())
        # One more tells whether there is another page.
        marks = await services.ledger.run(
            list_own(caller.tenant, models, limit=query.limit + 1, state=query.status, after=after)
        )
        page = marks[: query.limit]
        records = await services.ledger.get_many([mark.job_id for mark in page])
    response.headers["Cache-Control"] = "no-store"
    return JobList(
        jobs=[show(request, record) for record in records if record is not None],
        next=str(page[-1]) if len(marks) > len(page) else None,
    )


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
async def get_jobs(request: Request, services: ServicesOfApp, caller: CallerOfRequest) -> Response:
    """Up to 1,000 jobs at once, as they stand, without their places. Others' jobs are missing, as are unknown ones."""
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
                found.append(show(request, record).model_dump_json().encode())
    body = b'{"jobs":[' + b",".join(found) + b'],"missing":' + orjson.dumps(missing) + b"}"
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


@router.get(
    "/v1/jobs/{job_id}",  # noqa: FAST003 - OwnJob takes it
    operation_id="get_job",
    responses={
        200: {"headers": POLL_HEADERS},
        **problems(Unauthorized, JobNotFound, InvalidField, RateLimited, StoreUnavailable),
    },
)
async def get_job(
    own: OwnJob,
    query: Annotated[WaitQuery, Query()],
    request: Request,
    response: Response,
    services: ServicesOfApp,
) -> Job:
    """The job as it stands; with `wait`, as it stands when it has ended or the wait is over."""
    if query.wait and not own.state.terminal:
        until = asyncio.get_running_loop().time() + query.wait
        record = await unless_gone(request, services.waiters.wait_for_end(own.id, until=until))
    else:
        async with store_deadline(services.settings):
            record = await services.ledger.placed(own)
    if record is None:
        raise no_such_job()
    return answer(request, response, record, pending_status=200)


@router.get(
    "/v1/jobs/{job_id}/events",  # noqa: FAST003 - OwnJob takes it
    operation_id="watch_job",
    status_code=200,
    response_class=EventStream,
    responses={**EVENTS, **problems(Unauthorized, JobNotFound, RateLimited, StoreUnavailable)},
    openapi_extra={"parameters": [LAST_EVENT_ID]},
)
async def watch_job(own: OwnJob, request: Request, response: Response, services: ServicesOfApp) -> Response:
    """The job's progress as server-sent events: `queued` with its place, whenever that changes, `running`, and `ended`.

    Each event's data is the job. The stream ends with the job. Who connects again with `Last-Event-ID` is told what is
    new since, and gets a 204 when nothing can be new any more.
    """
    last_id = request.headers.get("last-event-id", "")
    if own.state.terminal and last_id == event_id(own):
        return Response(status_code=204)
    events = JobEvents(services.waiters, own.id, last_id=last_id, show=lambda each: show(request, each))
    stream = EventStream(events)
    stream.headers.update(response.headers)
    return stream


@router.delete(
    "/v1/jobs/{job_id}",  # noqa: FAST003 - OwnJob takes it
    operation_id="cancel_job",
    responses=problems(Unauthorized, JobNotFound, JobFinished, RateLimited, StoreUnavailable),
)
async def cancel_job(own: OwnJob, request: Request, response: Response, services: ServicesOfApp) -> Job:
    """Cancel a job that has not ended. One that runs is not interrupted, but its answer is dropped."""
    async with store_deadline(services.settings):
        (outcome,) = await services.ledger.run(services.ledger.commands.cancel([own.id]))
        record = await services.ledger.get(own.id)
    if outcome == "unknown" or record is None:
        raise no_such_job()
    if outcome != State.CANCELED:
        raise JobFinished(f"The job is over: it {_ENDS[record.state]}.")
    log.info("job.canceled", job_id=own.id, model=record.model)
    return answer(request, response, record, pending_status=200)


_ENDS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "was canceled",
    State.EXPIRED: "expired",
}
