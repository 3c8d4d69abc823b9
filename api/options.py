"""What may be asked for beside the image: checked the same way in all three forms of a submission."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from api.fields import find_problems
from tidegate.errors import InvalidField
from tidegate.jobs import NewJob

#: The longest that a job may take from its submission to its end, in seconds: a day.
MAX_EXPIRES_SECONDS = 86_400
#: Most bytes of metadata, as compact JSON: it is kept in Redis with the job and given back with every answer.
MAX_METADATA_BYTES = 4096
#: Longest name of a model.
MAX_NAME_CHARACTERS = 255

_REFUSAL = "Some options are not right."


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
    priority: Literal["high", "normal", "low"] = Field("normal", description="Which jobs of the model go first.")
    expires_in: Annotated[int, Field(ge=1, le=MAX_EXPIRES_SECONDS)] | None = Field(
        None, description="Seconds after which the job ends unanswered; by default never.", examples=[3600]
    )
    metadata: dict[str, str] = Field(
        default_factory=dict,
        description=f"Strings by name, given back with the job; at most {MAX_METADATA_BYTES} bytes of JSON.",
        examples=[{"order": "4711"}],
    )

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
    """Options out of a query or the parts of a form, where everything is text and ``metadata`` is JSON.

    Raises:
        InvalidField: naming every field that is wrong, or given twice.
    """
    fields: dict[str, Any] = {}
    for name, text in pairs:
        if name in fields:
            pointer = f"#/{name}" if name in JobOptions.model_fields else "#"
            raise InvalidField(_REFUSAL, problems=((pointer, "It is given more than once."),))
        fields[name] = text
    if "metadata" in fields:
        fields["metadata"] = _metadata(fields["metadata"])
    try:
        return JobOptions.model_validate(fields)
    except ValidationError as error:
        raise _refuse(error) from error


def _metadata(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        problem = ("#/metadata", 'Metadata must be a JSON object of strings, such as {"order": "4711"}.')
        raise InvalidField(_REFUSAL, problems=(problem,)) from error


def _refuse(error: ValidationError) -> InvalidField:
    known = ["image", *JobOptions.model_fields]
    return InvalidField(_REFUSAL, problems=find_problems(error.errors(include_input=False), known=known))
