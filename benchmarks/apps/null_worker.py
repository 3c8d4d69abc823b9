"""The worker with its real queue and no model: nothing is decoded and nothing is asked of Triton.

``celery -A benchmarks.apps.null_worker worker``. What is left is what the queue itself costs. Like
``worker/app.py``, this module is where Celery looks for its app, so importing it builds one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.null_contract import MODEL, null_contract
from tidegate.regions import Box
from tidegate.settings import Settings
from worker.app import app
from worker.batch import Prepare
from worker.child import Child, make_children_with
from worker.contract import ModelContract
from worker.triton import RepositoryModel, Triton

__all__ = ["app"]


class NullTriton(Triton):
    """A Triton without a server: it answers with the first byte of each image as its class."""

    def __init__(self) -> None:
        """Open nothing."""

    def repository(self) -> list[RepositoryModel]:
        """The one model, always ready."""
        return [RepositoryModel(MODEL, "1", ready=True, reason="")]

    def contract(self, model: str) -> ModelContract:
        """A classifier of 16 classes with the batch limit of the bundled EfficientNet."""
        del model
        return null_contract()

    def labels(self, contract: ModelContract, sample: NDArray[Any]) -> tuple[str, ...] | None:
        """It has none."""
        del contract, sample
        return None

    def room(self, contract: ModelContract, count: int) -> NDArray[Any]:
        """Rows of one pixel."""
        return contract.empty_batch(count)

    def infer(self, contract: ModelContract, batch: NDArray[Any], version: str = "") -> tuple[NDArray[Any], str]:
        """Scores by the first byte: ``float32 [count, classes]``."""
        del version
        scores = np.zeros((len(batch), contract.classes), np.float32)
        # A real file begins with a byte that may be more than there are classes.
        scores[np.arange(len(batch)), batch[:, 0, 0, 0] % contract.classes] = 8.0
        return scores, "1"

    def close(self) -> None:
        """Nothing is open."""


def take_first_byte(
    image: bytes, contract: ModelContract, rows: NDArray[Any], regions: Sequence[Box] | None = None
) -> None:
    """Stands for decoding and resizing."""
    del contract, regions
    rows[0, 0, 0, 0] = image[0]


class NullChild(Child):
    """A pool child that calls no server and decodes nothing."""

    def make_server(self, settings: Settings) -> Triton:
        """See the base class."""
        del settings
        return NullTriton()

    def make_prepare(self, settings: Settings) -> Prepare:
        """See the base class."""
        del settings
        return take_first_byte


make_children_with(NullChild)
