"""Jobs: listed, watched and canceled; each by whom it belongs to."""

from __future__ import annotations

from typing import Annotated

import structlog
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from api.answers import job_answer, show, show_json
from api.callers import CallerOfRequest
from api.deadline import store_deadline
from api.documentation import EVENTS, LAST_EVENT_ID, problems
from api.event_stream import EventStream, JobEvents, event_id
from api.options import MAX_NAME_CHARACTERS
from api.ownership import OwnJob, no_such_job
from api.schemas import JobList
from api.services import ServicesOfApp
from tidegate.documents import Job
from tidegate.errors import (
    InvalidField,
    JobFinished,
    JobNotFound,
    RateLimited,
    StoreUnavailable,
    Unauthorized,
)
from tidegate.jobs import State
from tidegate.own_jobs import Mark, list_own

log = structlog.get_logger(__name__)
router = APIRouter(tags=["jobs"])

MAX_PAGE_JOBS = 100


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


@router.get(
    "/v1/jobs/{job_id}/events",  # noqa: FAST003 - OwnJob takes it
    operation_id="watch_job",
    status_code=200,
    # Its own class would be told of as a text; what it is stands in EVENTS.
    response_class=Response,
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
    events = JobEvents(services.waiters, own.id, last_id=last_id, show=lambda each: show_json(request, each))
    stream = EventStream(events)
    stream.headers.update(response.headers)
    return stream


@router.delete(
    "/v1/jobs/{job_id}",  # noqa: FAST003 - OwnJob takes it
    operation_id="cancel_job",
    response_model=Job,
    responses=problems(Unauthorized, JobNotFound, JobFinished, RateLimited, StoreUnavailable),
)
async def cancel_job(own: OwnJob, request: Request, services: ServicesOfApp) -> Response:
    """Cancel a job that has not ended. One that runs is not interrupted, but its answer is dropped."""
    async with store_deadline(services.settings):
        (outcome,) = await services.ledger.run(services.ledger.commands.cancel([own.id]))
        record = await services.ledger.get(own.id)
    if outcome == "unknown" or record is None:
        raise no_such_job()
    if outcome != State.CANCELED:
        raise JobFinished(f"The job is over: it {_ENDS[record.state]}.")
    log.info("job.canceled", job_id=own.id, model=record.model)
    return job_answer(request, record)


_ENDS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELED: "was canceled",
    State.EXPIRED: "expired",
}
