"""What may be asked for beside the image: checked the same way in all three forms of a submission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from api.fields import find_problems
from tidegate.errors import InvalidField
from tidegate.formats import ImageLimits
from tidegate.jobs import NewJob
from tidegate.outbound.rules import MAX_URL_CHARACTERS
from tidegate.regions import MAX_REGIONS, Box

#: The longest that a job may take from its submission to its end, in seconds: a day.
MAX_EXPIRES_SECONDS = 86_400
#: Most bytes of metadata, as compact JSON: it is kept in Redis with the job and given back with every answer.
MAX_METADATA_BYTES = 4096
#: Longest name of a model.
MAX_NAME_CHARACTERS = 255

#: The ends of a job that a webhook can tell of.
WebhookEvent = Literal["job.succeeded", "job.failed", "job.canceled", "job.expired"]

_REFUSAL = "Some options are not right."

#: Bounded, since what is stored must fit into 64 bits; whether it lies in the image is judged by ``check_regions``.
PixelEdge = Annotated[int, Field(ge=0, le=ImageLimits.max_side)]
PixelBox = Annotated[list[PixelEdge], Field(min_length=4, max_length=4)]


class JobOptions(BaseModel):
    """The options of a submission; each may be left out."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    model: Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)] | None = Field(
        None,
        description="The model that answers; by default the only one there is, or the one that is configured.",
        examples=["efficientnet_lite0"],
    )
    version: Annotated[str, Field(pattern=r"^[1-9][0-9]{0,17}$")] | None = Field(
        None, description="The version of the model that must answer; by default the newest.", examples=["1"]
    )
    top_k: Annotated[int, Field(ge=1)] | None = Field(
        None,
        description=f"How many classes are named, best first; at most all, {NewJob.top_k} by default.",
        examples=[3],
    )
    regions: Annotated[list[PixelBox], Field(min_length=1, max_length=MAX_REGIONS)] | None = Field(
        None,
        description="Boxes [left, top, right, bottom] in pixels of the upright image, right and bottom excluded; each "
        "is classified on its own, and the answer keeps their order. By default the whole image is.",
        examples=[[[40, 20, 264, 244], [300, 0, 524, 224]]],
    )
    priority: Literal["high", "normal", "low"] = Field(
        "normal", description="Which jobs of the model go first. None waits for ever: now and then the oldest does."
    )
    expires_in: Annotated[int, Field(ge=1, le=MAX_EXPIRES_SECONDS)] | None = Field(
        None, description="Seconds after which the job ends unanswered; by default never.", examples=[3600]
    )
    metadata: dict[str, str] = Field(
        default_factory=dict,
        description=f"Strings by name, given back with the job; at most {MAX_METADATA_BYTES} bytes of JSON.",
        examples=[{"order": "4711"}],
    )

    webhook_url: Annotated[str, Field(min_length=1, max_length=MAX_URL_CHARACTERS)] | None = Field(
        None,
        description="Where the job is sent when it has ended, signed as Standard Webhooks has it.",
        examples=["https://example.com/hooks/tidegate"],
    )
    webhook_events: Annotated[list[WebhookEvent], Field(min_length=1)] | None = Field(
        None, description="The ends of which the webhook tells; by default all.", examples=[["job.succeeded"]]
    )

    @property
    def boxes(self) -> tuple[Box, ...] | None:
        """The regions as a job has them; None for the whole image."""
        if self.regions is None:
            return None
        return tuple((left, top, right, bottom) for left, top, right, bottom in self.regions)

    @field_validator("metadata")
    @classmethod
    def _must_be_small(cls, metadata: dict[str, str]) -> dict[str, str]:
        try:
            size = len(orjson.dumps(metadata))
        except orjson.JSONEncodeError as error:
            raise ValueError("Metadata must be text that can be written in UTF-8") from error
        if size > MAX_METADATA_BYTES:
            raise ValueError(f"Metadata must not take more than {MAX_METADATA_BYTES} bytes of JSON")
        return metadata


def options_from_json(fields: Mapping[str, Any]) -> JobOptions:
    """Options out of a JSON object; a number must be a number.

    Raises:
        InvalidField: naming every field that is wrong.
    """
    try:
        return JobOptions.model_validate(fields, strict=True)
    except ValidationError as error:
        raise _refuse(error) from error


def options_from_text(pairs: Iterable[tuple[str, str]]) -> JobOptions:
    """Options out of a query or the parts of a form, where everything is text.

    There ``metadata`` and ``regions`` are JSON, and ``webhook_events`` a comma list.

    Raises:
        InvalidField: naming every field that is wrong, or given twice.
    """
    fields: dict[str, Any] = {}
    for name, text in pairs:
        if name in fields:
            pointer = f"#/{name}" if name in JobOptions.model_fields else "#"
            raise InvalidField(_REFUSAL, problems=((pointer, "It is given more than once."),))
        fields[name] = text
    for name, hint in _JSON_HINTS.items():
        if name in fields:
            fields[name] = _json(name, fields[name], hint)
    if "webhook_events" in fields:
        fields["webhook_events"] = fields["webhook_events"].split(",")
    try:
        return JobOptions.model_validate(fields)
    except ValidationError as error:
        raise _refuse(error) from error


_JSON_HINTS = {
    "metadata": 'Metadata must be a JSON object of strings, such as {"order": "4711"}.',
    "regions": "Regions must be a JSON array of boxes, such as [[0, 0, 224, 224]].",
}


def _json(name: str, text: str, hint: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidField(_REFUSAL, problems=((f"#/{name}", hint),)) from error


def _refuse(error: ValidationError) -> InvalidField:
    known = ["image", *JobOptions.model_fields]
    return InvalidField(_REFUSAL, problems=find_problems(error.errors(include_input=False), known=known))
