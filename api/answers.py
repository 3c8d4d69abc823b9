"""The answers that tell of jobs, as bytes at once: FastAPI and pydantic document them, and do not write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fastapi import Request, Response

from api.addresses import job_path
from api.callers import noted_headers
from api.pacing import POLL_HINT_SECONDS
from tidegate.documents import Job, job_json
from tidegate.jobs import JobRecord


def show(request: Request, record: JobRecord) -> Job:
    """The job as its client sees it."""
    return Job.from_record(record, url=job_path(request, record.id))


def show_json(request: Request, record: JobRecord) -> bytes:
    """The same as JSON."""
    return job_json(record, url=job_path(request, record.id))


def json_answer(
    request: Request, body: bytes, *, status: int = 200, headers: Mapping[str, str] = MappingProxyType({})
) -> Response:
    """An answer about jobs.

    A job changes until it ends, and is its client's own business: nobody in between may keep it.
    """
    told = {"Cache-Control": "no-store", **noted_headers(request), **headers}
    return Response(body, status, told, media_type="application/json")


def job_answer(
    request: Request,
    record: JobRecord,
    *,
    pending_status: int = 200,
    headers: Mapping[str, str] = MappingProxyType({}),
) -> Response:
    """The job, with what the status and the headers say of it."""
    body = show_json(request, record)
    if record.state.terminal:
        return json_answer(request, body, headers=headers)
    poll = {"Retry-After": str(POLL_HINT_SECONDS), **headers}
    return json_answer(request, body, status=pending_status, headers=poll)


def json_array(items: Iterable[bytes]) -> bytes:
    """JSON texts as one."""
    return b"[" + b",".join(items) + b"]"
