"""What a worker must know of a model: its tensors, its batches, its answers.

:func:`worker.contract.reader.read_contract` makes a contract out of Triton's answers; batches, images and
scores work from it and never look at Triton's configuration themselves.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal, Self

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from tidegate.errors import ModelContractError
from worker.contract.preprocessing import Layout, Preprocessing

Datatype = Literal["UINT8", "FP16", "BF16", "FP32", "BYTES"]

DTYPES: Mapping[Datatype, np.dtype[Any]] = {
    "UINT8": np.dtype(np.uint8),
    "FP16": np.dtype(np.float16),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "FP32": np.dtype(np.float32),
    "BYTES": np.dtype(np.object_),
}
"""The numpy type of each input that is served; ``tritonclient`` takes no other for BF16 and FP16."""


NO_LIMIT = 2**31 - 1
"""The batch limit of a model that sets none: no count of images comes near it."""


class Batching(enum.Enum):
    """How the images of one call map to the input tensor."""

    MODEL = "max_batch_size"
    """The model has ``max_batch_size`` above 0: Triton puts a batch dimension before ``dims``."""
    EXPLICIT = "leading -1"
    """``max_batch_size`` is 0, but ``dims`` starts with a -1 that takes any number of images."""
    FIXED_ONE = "leading 1"
    """``dims`` starts with a 1: one image a call, with a dimension of its own."""
    NONE = "none"
    """``dims`` are the image: one image a call."""


class Scores(enum.StrEnum):
    """What the numbers of the output are."""

    LOGITS = "logits"
    """Unbounded; softmax makes probabilities of them."""
    PROBABILITIES = "probabilities"
    """The model has its softmax or sigmoid inside."""
    RAW = "raw"
    """Nothing is claimed about them: the default."""


@dataclass(frozen=True)
class ModelContract:
    """One model, as far as batches, tensors and answers depend on it.

    Attributes:
        name: as in the model repository.
        versions: those that Triton serves, oldest first.
        input_name: the one input tensor.
        datatype: of the input, as Triton's protocol spells it.
        image_shape: of one image in the input, without the batch.
        batching: how images map to the input tensor.
        batch_limit: most images in one call; ``NO_LIMIT`` where the model sets none.
        output_name: the output that holds the scores.
        output_datatype: of the scores, as Triton's protocol spells it.
        classes: how many scores there are for each image.
        scores: what the scores are.
        preprocessing: what happens to the pixels; None where the model decodes the image itself.
        label_file: the file of class names in the model's folder, where its configuration names one.
        labels: the class names, ``classes`` of them, or None.
    """

    name: str
    versions: tuple[str, ...]
    input_name: str
    datatype: Datatype
    image_shape: tuple[int, ...]
    batching: Batching
    batch_limit: int
    output_name: str
    output_datatype: str
    classes: int
    scores: Scores
    preprocessing: Preprocessing | None
    label_file: str | None = None
    labels: tuple[str, ...] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy type of the input tensor."""
        return DTYPES[self.datatype]

    @property
    def image_bytes(self) -> int | None:
        """Bytes of one image in the input tensor; None where the model decodes it, and they are as many as it has."""
        return None if self.dtype.hasobject else prod(self.image_shape) * self.dtype.itemsize

    @property
    def layout(self) -> Layout | None:
        """Where the channels stand; None where the model decodes the image itself."""
        return self.preprocessing.layout if self.preprocessing else None

    @property
    def fingerprint(self) -> str:
        """Sixteen hex digits that change when anything but the labels does."""
        facts = dataclasses.replace(self, labels=None)
        return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]

    def input_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the input tensor for ``batch`` images.

        Raises:
            ValueError: the model does not take so many in one call.
        """
        if not 1 <= batch <= self.batch_limit:
            raise ValueError(f"{self.name} takes 1 to {self.batch_limit} images a call, not {batch}")
        if self.batching is Batching.NONE:
            return self.image_shape
        return (batch, *self.image_shape)

    def empty_batch(self, count: int) -> NDArray[Any]:
        """Room for ``count`` images, one a row: ``[count, *image_shape]`` of the input's type, values undefined.

        A slice of it, as long as the model takes in one call, is shaped by :meth:`as_input`.
        """
        return np.empty((count, *self.image_shape), dtype=self.dtype)

    def as_input(self, rows: NDArray[Any]) -> NDArray[Any]:
        """A view of rows of :meth:`empty_batch` in the shape that one call takes.

        Raises:
            ValueError: the model does not take so many in one call.
        """
        return rows.reshape(self.input_shape(len(rows)))

    def with_labels(self, labels: Sequence[str]) -> Self:
        """The same contract with class names.

        Raises:
            ModelContractError: there is not exactly one name for each class.
        """
        if len(labels) != self.classes:
            raise ModelContractError(f"model {self.name} has {self.classes} classes, but {len(labels)} labels")
        return dataclasses.replace(self, labels=tuple(labels))

    def describe_input(self) -> str:
        """The input in words for people, such as ``UINT8 [224, 224, 3] NHWC``."""
        return " ".join(filter(None, (self.datatype, str(list(self.image_shape)), self.layout)))
