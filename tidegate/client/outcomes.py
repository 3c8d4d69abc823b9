"""What became of each of many images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Self

from tidegate.client.documents import JobState, Result
from tidegate.client.errors import ClientError, error_from_job
from tidegate.client.images import ImageT


@dataclass(frozen=True)
class Outcome(Generic[ImageT]):
    """One image of many, and what became of it.

    Attributes:
        image: as it was given.
        job: its job; None where it did not become one.
        error: why it has no result; None where it has one, or its end was not waited for.
    """

    image: ImageT
    job: JobState | None
    error: ClientError | None

    @property
    def result(self) -> Result:
        """What the model said.

        Raises:
            ClientError: why it said nothing; WaitTimeout where the job has not ended.
        """
        if self.error is not None:
            raise self.error
        return result_of(self.job)

    @classmethod
    def of_job(cls, image: ImageT, job: JobState) -> Self:
        """Of a job that has ended, or one whose end is not waited for."""
        return cls(image, job, error_from_job(job) if job.ended else None)

    @classmethod
    def of_error(cls, image: ImageT, error: ClientError) -> Self:
        """Of an image that did not become a job, or one that was not waited for to its end."""
        return cls(image, error.job, error)


def result_of(job: JobState | None) -> Result:
    """The result of a job that has ended.

    Raises:
        ClientError: it ended without one; see ``tidegate/client/errors.py``.
    """
    assert job is not None
    error = error_from_job(job)
    if error is not None:
        raise error
    assert job.result is not None
    return job.result
