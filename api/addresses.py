"""Where a job is, as its client is told it."""

from __future__ import annotations

from fastapi import Request, Response

from api.pacing import POLL_HINT_SECONDS
from tidegate.documents import Job
from tidegate.jobs import JobRecord

#: Where jobs are.
JOBS_PATH = "/v1/jobs"


def job_path(request: Request, job_id: str) -> str:
    """The path of a job: a host would be wrong behind most proxies, but their prefix belongs to it."""
    # ``request.url_for`` would walk all routes for it, thrice a submission.
    return f"{request.scope.get('root_path', '').rstrip('/')}{JOBS_PATH}/{job_id}"


def show(request: Request, record: JobRecord) -> Job:
    """The job as its client sees it."""
    return Job.from_record(record, url=job_path(request, record.id))


def answer(request: Request, response: Response, record: JobRecord, *, pending_status: int) -> Job:
    """The job, with what its headers say of it."""
    if record.state.terminal:
        response.status_code = 200
    else:
        response.status_code = pending_status
        response.headers["Retry-After"] = str(POLL_HINT_SECONDS)
    # A job changes until it ends, and is its client's own business: nobody in between may keep it.
    response.headers["Cache-Control"] = "no-store"
    return show(request, record)
