"""What a request for jobs says: the wait of one for a single job, and the body of one for many."""

from __future__ import annotations

from typing import Annotated

import orjson
from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from api.fields import find_problems
from api.prefer import MAX_WAIT_SECONDS
from tidegate.errors import InvalidField, InvalidRequest
from tidegate.jobs import is_job_id

MAX_LOOKUP_JOBS = 1000
#: Largest such body: an id takes 36 bytes.
MAX_LOOKUP_BYTES = 64 * MAX_LOOKUP_JOBS


class WaitQuery(BaseModel):
    """How long to hold the answer."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    wait: int = Field(
        0, ge=0, le=MAX_WAIT_SECONDS, description="Seconds to hold the answer, unless the job ends before."
    )


def wait_seconds(request: Request) -> int:
    """For how long the answer is to be held.

    Raises:
        InvalidField: that is no number of seconds that is allowed, or there is more in the query.
    """
    if not request.scope["query_string"]:
        return 0
    try:
        return WaitQuery.model_validate(dict(request.query_params)).wait
    except ValidationError as error:
        problems = find_problems(error.errors(include_input=False))
        raise InvalidField("Some parameters are not right.", problems=problems) from error


class Lookup(BaseModel):
    """Which jobs are wanted."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    ids: Annotated[list[str], Field(min_length=1, max_length=MAX_LOOKUP_JOBS, description="Ids of jobs.")]


async def read_job_ids(request: Request) -> list[str]:
    """The ids in the body, each once, in their order.

    Raises:
        InvalidRequest: the body is no JSON object.
        InvalidField: it has no ids, or too many, or some are none.
    """
    try:
        document = orjson.loads(await request.body())
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("The body is no JSON: broken, too deep, or with a text out of range.") from error
    if not isinstance(document, dict):
        raise InvalidRequest("The body must be a JSON object.")
    try:
        ids = Lookup.model_validate(document, strict=True).ids
    except ValidationError as error:
        problems = find_problems(error.errors(include_input=False), known=["ids"])
        raise InvalidField("The ids are not right.", problems=problems) from error
    if not all(map(is_job_id, ids)):
        raise InvalidField("The ids are not right.", problems=(("#/ids", "Each must be the id of a job."),))
    return list(dict.fromkeys(ids))
