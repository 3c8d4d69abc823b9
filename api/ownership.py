"""A job belongs to the key that submitted it: to any other it does not exist."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends

from api.callers import CallerOfRequest
from api.deadline import store_deadline
from api.services import ServicesOfApp
from tidegate.errors import JobNotFound
from tidegate.jobs import JobRecord, is_job_id


async def _own_job(job_id: str, services: ServicesOfApp, caller: CallerOfRequest) -> JobRecord:
    if not is_job_id(job_id):
        raise no_such_job()
    async with store_deadline(services.settings):
        (record,) = await services.ledger.get_many([job_id])
    if record is None or record.tenant != caller.tenant:
        raise no_such_job()
    return record


#: A route's parameter of this type is given the job of the path, as it stands; somebody else's is not found.
OwnJob = Annotated[JobRecord, Depends(_own_job)]


def no_such_job() -> JobNotFound:
    """What is said of a job that is not there."""
    return JobNotFound("There is no such job, or it ended long ago and is no longer kept.")
