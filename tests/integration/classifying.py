"""A worker's own parts, in this process: from encoded images to predictions, without queue and pool."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tests.integration.workers import quick_settings
from tidegate.declarations import ModelDeclaration
from worker.calls import ModelCalls
from worker.child import ContractCache
from worker.contract import ModelContract
from worker.limits import CallLimits
from worker.rows import RowMaker
from worker.scores import Prediction, rank
from worker.triton import Triton


class Classifier:
    """What a pool child does with a batch, short of the ledger."""

    def __init__(self, triton: Triton, contract: ModelContract, settings: Any) -> None:
        self.contract = contract
        self._triton = triton
        self._rows = RowMaker(settings)
        self._calls = ModelCalls(triton, CallLimits.of(settings))

    def classify(self, images: Sequence[bytes], *, version: str = "") -> list[list[Prediction]]:
        """All predictions of each image, best first."""
        rows = self._triton.room(self.contract, len(images))
        for index, image in enumerate(images):
            self._rows.fill(image, self.contract, rows[index : index + 1])
        answers = self._calls.ask(self.contract, rows, version)
        scores = []
        for answer in answers:
            if answer.error is not None:
                raise answer.error
            assert answer.scores is not None
            scores.append(answer.scores)
        contract = self.contract
        ranked = rank(np.stack(scores), kind=contract.scores, top_k=[99] * len(scores), labels=contract.labels)
        return [predictions for predictions in ranked if predictions is not None]


@contextmanager
def classifier(
    url: str, model: str, *, models: Mapping[str, ModelDeclaration] | None = None, **settings: Any
) -> Iterator[Classifier]:
    """A classifier of one model of the server at ``url``, with its labels."""
    chosen = quick_settings("redis://unused", url, models=models or {}, **settings)
    triton = Triton(chosen)
    try:
        yield Classifier(triton, ContractCache(triton, chosen.models).warm_up(triton.contract(model)), chosen)
    finally:
        triton.close()
