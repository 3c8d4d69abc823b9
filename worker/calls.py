"""Rows of a batch to the model server and back: within the limits of a call, and past images that are refused.

:mod:`worker.batch` makes rows of jobs; here rows are all there is, and each gets its own answer or error.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from tidegate.errors import InferenceError, ModelRejectedInput
from worker.contract import ModelContract
from worker.limits import CallLimits
from worker.scores import split_rows


class ModelServer(Protocol):
    """Triton, as far as a batch needs it."""

    def room(self, contract: ModelContract, count: int) -> NDArray[Any]:
        """Where to prepare images; valid until the next call."""
        ...

    def infer(self, contract: ModelContract, batch: NDArray[Any], version: str = "") -> tuple[NDArray[Any], str]:
        """Run one batch; raises an InferenceError."""
        ...


@dataclass(frozen=True, eq=False)
class CallFacts:
    """One call, as its rows remember it; two calls are never equal.

    Attributes:
        images: how many went.
        duration_ms: until the answer.
    """

    images: int
    duration_ms: float = 0.0


class RowAnswer(NamedTuple):
    """What a call brought for one row: scores ``[classes]`` and the version that gave them, or an error."""

    call: CallFacts
    scores: NDArray[Any] | None = None
    version: str = ""
    error: InferenceError | None = None


class Answer(NamedTuple):
    """What came back for the rows of one job.

    Attributes:
        scores: of each row, in order; empty when there is an error.
        version: that answered; the last one, where a model was exchanged between two calls.
        mixed: more than one version answered, so the scores do not belong together.
        error: of the first row that has one.
        infer_ms: of all calls that carried a row of the job.
        images: of the largest of them.
    """

    scores: tuple[NDArray[Any], ...]
    version: str
    mixed: bool
    error: InferenceError | None
    infer_ms: float
    images: int


def gather(rows: Sequence[RowAnswer]) -> Answer:
    """Put the answers of one job's rows together; there is at least one."""
    calls = dict.fromkeys(row.call for row in rows)
    error = next((row.error for row in rows if row.error is not None), None)
    return Answer(
        scores=tuple(row.scores for row in rows if row.scores is not None) if error is None else (),
        version=rows[-1].version,
        mixed=error is None and len({row.version for row in rows}) > 1,
        error=error,
        infer_ms=sum(call.duration_ms for call in calls),
        images=max(call.images for call in calls),
    )


class ModelCalls:
    """Asks one server, as often as the limits of a call make necessary."""

    def __init__(self, server: ModelServer, limits: CallLimits) -> None:
        self._server = server
        self._limits = limits

    def ask(self, contract: ModelContract, rows: NDArray[Any], version: str = "") -> list[RowAnswer]:
        """Have every row answered.

        Args:
            contract: of the model.
            rows: ``[n, ...image shape]``, of the contract's type.
            version: which version must answer; empty for the server's choice.
        """
        answers: list[RowAnswer] = []
        for part in self._limits.deal(_sizes(rows), contract):
            answers += self._ask(contract, rows[part], version)
        return answers

    def _ask(self, contract: ModelContract, rows: NDArray[Any], version: str) -> list[RowAnswer]:
        """One call; rows that are refused together are halved until the culprit stands alone."""
        started = time.monotonic()
        try:
            output, answered = self._server.infer(contract, rows, version)
            scores = split_rows(output, expected=len(rows), classes=contract.classes)
        except ModelRejectedInput as error:
            if len(rows) == 1:
                return [RowAnswer(CallFacts(1), error=error)]
            middle = len(rows) // 2
            return self._ask(contract, rows[:middle], version) + self._ask(contract, rows[middle:], version)
        except InferenceError as error:
            call = CallFacts(len(rows))
            return [RowAnswer(call, error=error)] * len(rows)
        call = CallFacts(len(rows), (time.monotonic() - started) * 1000)
        return [RowAnswer(call, row, answered) for row in scores]


#: What the protocol puts before each string. Source: Open Inference Protocol, "Tensor Data", BYTES.
LENGTH_BYTES = 4


def _sizes(rows: NDArray[Any]) -> list[int]:
    """What each row takes in a message, in bytes."""
    if rows.dtype.hasobject:
        return [LENGTH_BYTES + len(image) for image in rows.flat]
    return [rows[0].nbytes] * len(rows) if len(rows) else []
