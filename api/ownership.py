"""A job belongs to the key that submitted it: to any other it does not exist."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from api.callers import Caller, CallerOfRequest
from api.deadline import store_deadline
from api.services import ServicesOfApp
from tidegate.errors import JobNotFound
from tidegate.jobs import JobRecord, is_job_id


async def _own_job(job_id: str, services: ServicesOfApp, caller: CallerOfRequest) -> JobRecord:
    check_job_id(job_id)
    async with store_deadline(services.settings):
        record = await services.readings.job(job_id, with_place=False)
    return owned(record, caller)


#: A route's parameter of this type is given the job of the path, as it stands; somebody else's is not found.
OwnJob = Annotated[JobRecord, Depends(_own_job)]


def check_job_id(text: str) -> None:
    """Let ids of jobs pass.

    Raises:
        JobNotFound: it is none, so there is no such job.
    """
    if not is_job_id(text):
        raise no_such_job()


def owned(record: JobRecord | None, caller: Caller) -> JobRecord:
    """The job, if it is the caller's.

    Raises:
        JobNotFound: there is none, or it is somebody else's.
    """
    if record is None or record.tenant != caller.tenant:
        raise no_such_job()
    return record


def no_such_job() -> JobNotFound:
    """What is said of a job that is not there."""
    return JobNotFound("There is no such job, or it ended long ago and is no longer kept.")
