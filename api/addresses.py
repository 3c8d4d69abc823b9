"""Where a job is, as its client is told it."""

from __future__ import annotations

from fastapi import Request

#: Where jobs are.
JOBS_PATH = "/v1/jobs"


def job_path(request: Request, job_id: str) -> str:
    """The path of a job: a host would be wrong behind most proxies, but their prefix belongs to it."""
    # ``request.url_for`` would walk all routes for it, thrice a submission.
    return f"{request.scope.get('root_path', '').rstrip('/')}{JOBS_PATH}/{job_id}"
