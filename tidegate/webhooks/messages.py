"""What a webhook says: the job as its client would be shown it at its end."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from tidegate.documents import Document, Job, moment
from tidegate.jobs import JobRecord


class Message(Document):
    """The body of a webhook. Source: Standard Webhooks 1.0.0, "Payload structure"."""

    type: str = Field(examples=["job.succeeded"])
    timestamp: datetime = Field(description="When the job ended; that of the attempt is in the headers.")
    data: Job


def render(event: str, record: JobRecord, *, path: str) -> bytes:
    """The body for a job that has ended, the same bytes on every attempt.

    Args:
        event: such as ``job.succeeded``.
        record: the job as it ended.
        path: where its client can ask for it.
    """
    assert record.finished_ms is not None, "only an ended job has a webhook"
    job = Job.from_record(record, url=path)
    return Message(type=event, timestamp=moment(record.finished_ms), data=job).model_dump_json().encode()
