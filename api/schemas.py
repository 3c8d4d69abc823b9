"""The answers of the API, as clients see them."""

from __future__ import annotations

from datetime import datetime
from typing import Self

from pydantic import ConfigDict, Field

from tidegate.catalogue import ModelEntry, ModelState
from tidegate.documents import Document, Job, moment
from tidegate.webhooks.deliveries import Delivery, DeliveryState


class DeliveryStatus(Document):
    """One webhook delivery, as it stands."""

    id: str = Field(
        description="What the receiver gets as `webhook-id`, the same on every attempt.",
        examples=["01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e-succeeded"],
    )
    event: str = Field(examples=["job.succeeded"])
    host: str = Field(description="Where it goes, without the rest of the URL.", examples=["example.com:443"])
    state: DeliveryState = Field(
        description="`pending`; `delivered`; `failed`, by an answer after which another try is in vain; `dead`, when "
        "it did not get through in time; or `disabled`, since its URL answered 410 before."
    )
    attempts: int = Field(description="So far.", ge=0)
    last_status: int | None = Field(description="HTTP status of the last answer; null where there was none.")
    last_note: str | None = Field(description="Its reason phrase, or why there was no answer.")
    created_at: datetime
    last_attempt_at: datetime | None
    next_attempt_at: datetime | None = Field(description="Null when it will not be tried any more.")

    @classmethod
    def from_delivery(cls, delivery: Delivery) -> Self:
        """The delivery as the ledger has it."""
        return cls(
            id=delivery.id,
            event=delivery.event,
            host=delivery.host,
            state=delivery.state,
            attempts=delivery.attempts,
            last_status=delivery.status,
            last_note=delivery.note or None,
            created_at=moment(delivery.created_ms),
            last_attempt_at=moment(delivery.last_ms) if delivery.last_ms else None,
            next_attempt_at=moment(delivery.due_ms) if delivery.due_ms else None,
        )


class DeliveryList(Document):
    """The webhook deliveries of a job; empty while it has not ended."""

    deliveries: list[DeliveryStatus]


class Model(Document):
    """A model, as the workers found it in Triton."""

    name: str = Field(examples=["efficientnet_lite0"])
    state: ModelState = Field(
        description="`ready`; `unavailable` for now, its jobs wait; or `broken`, which is no classifier we can serve."
    )
    reason: str | None = Field(None, description="Why it is not ready.")
    notice: str | None = Field(None, description="What its answers lack though it is ready, such as class names.")
    versions: list[str] = Field(description="The versions that Triton serves, oldest first.", examples=[["1"]])
    classes: int = Field(description="How many classes it tells apart; 0 where it was never ready.", ge=0)
    batch_limit: int = Field(description="Most images in one call; 0 where it was never ready.", ge=0)
    input: str = Field(description="Its input tensor in words.", examples=["uint8 [224, 224, 3] NHWC"])

    @classmethod
    def from_entry(cls, entry: ModelEntry) -> Self:
        """The model as the catalogue has it."""
        return cls.model_validate(entry, from_attributes=True)


class ModelList(Document):
    """All models, by name."""

    models: list[Model]


class JobList(Document):
    """A page of jobs."""

    jobs: list[Job]
    next: str | None = Field(None, description="The `cursor` of the next page; null on the last.")


class JobLookup(Document):
    """Jobs that were asked for by their ids."""

    jobs: list[Job] = Field(description="Those that there are, in the order in which they were asked for.")
    missing: list[str] = Field(description="Ids of which there is no job that this caller may see.")


class Health(Document):
    """The process lives."""

    status: str = Field("ok", examples=["ok"])


class Readiness(Document):
    """Jobs can be accepted, for the models that are told here."""

    status: str = Field("ready", examples=["ready"])
    models: list[Model]


class FieldProblem(Document):
    """What is wrong with one field."""

    detail: str = Field(examples=["Input should be less than or equal to 86400"])
    pointer: str = Field(description="JSON pointer of the field.", examples=["#/expires_in"])


class Problem(Document):
    """Why a request was refused. Source: RFC 9457."""

    model_config = ConfigDict(frozen=True, hide_input_in_errors=True, populate_by_name=True)

    type: str = Field(description="A URI that names the kind of problem.", examples=["about:blank"])
    title: str = Field(description="The kind of problem in words.", examples=["Not Found"])
    status: int = Field(description="The HTTP status.", examples=[404])
    detail: str = Field(description="What happened this time, for people.")
    code: str = Field(description="Stable, snake_case; what programs match on.", examples=["job_not_found"])
    errors: list[FieldProblem] | None = Field(None, description="The fields that are wrong, for `invalid_field`.")
    violated_policies: list[str] | None = Field(
        None, alias="violated-policies", description="The limits that were reached, for `rate_limited`."
    )


class SubmittedImage(Document):
    """What became of one image of many."""

    job: Job | None = Field(None, description="Its job, when it was accepted.")
    problem: Problem | None = Field(None, description="Why there is none, when it was not.")


class SubmittedBatch(Document):
    """What became of many images, in their order."""

    jobs: list[SubmittedImage]
