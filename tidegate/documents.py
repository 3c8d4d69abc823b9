"""A job as clients see it: the same in the answers of the API and in webhooks."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import orjson
from pydantic import BaseModel, ConfigDict, Field

from tidegate.jobs import JobRecord, State


class Document(BaseModel):
    """The base of whatever clients are shown."""

    # What a client sent must not get into a traceback by way of an error message.
    model_config = ConfigDict(frozen=True, hide_input_in_errors=True)


class Prediction(Document):
    """One class, and how sure the model is of it."""

    class_id: int = Field(description="Index of the class in the model's output.", examples=[967])
    class_name: str | None = Field(None, description="Its label, where the model has labels.", examples=["espresso"])
    logit: float | None = Field(None, description="The raw score, where the model gives logits.", examples=[9.87])
    probability: float | None = Field(None, description="0 to 1, where the scores allow one.", examples=[0.95])
    score: float | None = Field(None, description="The raw score of a model that does not say what its scores are.")


class Region(Document):
    """What the model said of one region."""

    box: list[int] = Field(description="As it was asked for: left, top, right, bottom.", examples=[[40, 20, 264, 244]])
    predictions: list[Prediction] = Field(description="Best first.")


class Result(Document):
    """What the model said."""

    predictions: list[Prediction] = Field(description="Best first; empty where regions were asked for.")
    regions: list[Region] | None = Field(None, description="Those that were asked for, in their order.")


class JobError(Document):
    """Why a job failed, or why its last try did while it waits for the next."""

    code: str = Field(description="Stable, snake_case.", examples=["image_corrupt"])
    message: str = Field(description="One sentence for people.", examples=["The image is truncated."])
    retryable: bool = Field(description="Whether the same job may go well later.")


class Timings(Document):
    """Where the time went, in milliseconds; null for what has not happened."""

    queued_ms: float | None = Field(None, description="From the submission to the start of the last run.")
    preprocess_ms: float | None = Field(None, description="Decoding and scaling this image.")
    infer_ms: float | None = Field(None, description="The call to Triton that served its batch.")
    total_ms: float | None = Field(None, description="From the submission to the end.")


class Batch(Document):
    """The batch that a job ran in."""

    id: str
    size: int = Field(description="How many images went to Triton in one call.", ge=1)


class Urls(Document):
    """Where the job can be asked for and canceled, relative to the host."""

    get: str = Field(examples=["/v1/jobs/01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e"])
    cancel: str = Field(description="Takes DELETE.", examples=["/v1/jobs/01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e"])


class Job(Document):
    """A job as it stands."""

    id: str = Field(description="A UUIDv7.", examples=["01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e"])
    status: State
    model: str = Field(examples=["efficientnet_lite0"])
    model_version: str | None = Field(
        None, description="The version that answered, or that was asked for; null for the newest.", examples=["1"]
    )
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    expires_at: datetime | None = Field(None, description="When it ends unanswered; null for never.")
    attempts: int = Field(description="Runs so far.", ge=0)
    queue_position: int | None = Field(
        None, description="How many jobs of its model go before it; null when it is in no queue."
    )
    estimated_start_at: datetime | None = Field(
        None, description="When it is likely to start, at the present pace of its model; null while that is not known."
    )
    cached: bool = Field(False, description="Whether it has the answer to an equal job, and did not run itself.")
    result: Result | None = None
    error: JobError | None = None
    metadata: dict[str, str] = Field(description="As it was given.")
    timings: Timings
    batch: Batch | None = None
    urls: Urls

    @classmethod
    def from_record(cls, record: JobRecord, *, url: str) -> Self:
        """The job as the ledger has it; ``url`` is where it can be asked for."""
        return cls.model_validate(_document(record, url))


def job_json(record: JobRecord, *, url: str) -> bytes:
    """The same as JSON, in a fraction of the time: a poll costs little else."""
    return orjson.dumps(_document(record, url), option=orjson.OPT_UTC_Z)


def _document(record: JobRecord, url: str) -> dict[str, Any]:
    """A job with all its fields, in the order and the types of :class:`Job`."""
    run = record.run
    return {
        "id": record.id,
        "status": record.state,
        "model": record.model,
        "model_version": run.get("model_version") or record.version,
        "created_at": moment(record.created_ms),
        "started_at": moment(record.started_ms) if record.started_ms else None,
        "finished_at": moment(record.finished_ms) if record.finished_ms else None,
        "expires_at": moment(record.deadline_ms) if record.deadline_ms else None,
        "attempts": record.attempts,
        "queue_position": record.position,
        "estimated_start_at": _from_now(record.start_in_ms) if record.start_in_ms is not None else None,
        "cached": record.cached,
        "result": _result(record) if record.result is not None else None,
        "error": record.error or None,
        "metadata": record.options.get("metadata", {}),
        "timings": _timings(record),
        "batch": {"id": run["batch_id"], "size": run["batch_size"]} if "batch_id" in run else None,
        "urls": {"get": url, "cancel": url},
    }


def _result(record: JobRecord) -> dict[str, Any]:
    found = record.result or []
    if "regions" not in record.options:
        return {"predictions": [_prediction(each) for each in found], "regions": None}
    regions = [{"box": one["box"], "predictions": [_prediction(each) for each in one["predictions"]]} for one in found]
    return {"predictions": [], "regions": regions}


def _prediction(found: Mapping[str, Any]) -> dict[str, Any]:
    return {name: found.get(name) for name in _PREDICTION_FIELDS}


_PREDICTION_FIELDS = tuple(Prediction.model_fields)


def moment(milliseconds: int) -> datetime:
    """A time of Redis's clock, in milliseconds since the epoch, as clients see it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _from_now(milliseconds: int) -> datetime:
    return datetime.now(UTC) + timedelta(milliseconds=milliseconds)


def _timings(record: JobRecord) -> dict[str, float | None]:
    def since_created(moment_ms: int | None) -> float | None:
        return float(moment_ms - record.created_ms) if moment_ms is not None else None

    return {
        "queued_ms": since_created(record.started_ms),
        "preprocess_ms": record.run.get("preprocess_ms"),
        "infer_ms": record.run.get("infer_ms"),
        "total_ms": since_created(record.finished_ms),
    }
