"""What a person says of a model that its server does not: ``TIDEGATE_MODELS``, JSON by name.

Triton tells everything itself. Other servers of the Open Inference Protocol have no model configuration, no labels
and often no index of their models; ``docs/models.md`` tells which lacks what. A declaration adds to what a server
tells and never overrules it: where both speak and differ, the model is reported as broken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

DeclaredType = Literal["UINT8", "FP16", "BF16", "FP32", "FP64", "BYTES"]


class TensorDeclaration(BaseModel):
    """An input or output, where the server's metadata leaves it out.

    Attributes:
        name: as the server knows it.
        datatype: as the protocol spells it.
        shape: with the batch; -1 where a side takes any size.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Annotated[str, Field(min_length=1)]
    datatype: DeclaredType
    shape: Annotated[tuple[Annotated[int, Field(ge=-1)], ...], Field(min_length=1, max_length=4)]


class ModelDeclaration(BaseModel):
    """One model. What is left out stays as the server tells it, or at the default of ``docs/models.md``.

    Attributes:
        input: the tensor that takes images.
        output: the tensor that holds the scores.
        format: the layout, where the shape leaves it open.
        batch_limit: most images in one call.
        labels: the class names, in order.
        labels_file: a text file on the workers' machines with one class name a line, instead of ``labels``.
        parameters: the ``tidegate.*`` parameters of ``docs/models.md``, by name without the prefix.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: TensorDeclaration | None = None
    output: TensorDeclaration | None = None
    format: Literal["NHWC", "NCHW"] | None = None
    batch_limit: Annotated[int, Field(ge=1)] | None = None
    labels: tuple[str, ...] = ()
    labels_file: str | None = None
    parameters: Mapping[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _must_name_classes_once(self) -> Self:
        if self.labels and self.labels_file is not None:
            raise ValueError("labels and labels_file exclude each other")
        return self
