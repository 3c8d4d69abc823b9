"""From the model's output to ranked predictions: pure functions over one answer of Triton.

Scores are ranked here and not by Triton's classification extension, which prints six decimals, sorts ties
in any order, and refuses half precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NotRequired, TypedDict

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import ModelOutputInvalid
from worker.contract import Scores


class Prediction(TypedDict):
    """One class and what the model says of it, ready for JSON.

    ``logit`` and ``probability`` come with logits, ``probability`` alone with probabilities, and ``score``
    with raw scores.
    """

    class_id: int
    class_name: str | None
    logit: NotRequired[float]
    probability: NotRequired[float]
    score: NotRequired[float]


def split_rows(output: NDArray[Any], expected: int, classes: int) -> NDArray[Any]:
    """Cut an answer into one row of scores for each image.

    Args:
        output: as the model shapes it, such as ``[n, classes]``, ``[n, classes, 1, 1]`` or, for one image,
            ``[classes]``.
        expected: how many images were asked about.
        classes: how many scores each of them must have.

    Returns:
        A view, ``[expected, classes]``.

    Raises:
        ModelOutputInvalid: the answer has another number of rows or classes. Rows are never guessed at:
            a row that is given to the wrong image is worse than none.
    """
    row = _without_ones((classes,))
    one_a_row = output.shape[:1] == (expected,) and _without_ones(output.shape[1:]) == row
    lone_row = expected == 1 and _without_ones(output.shape) == row
    if not one_a_row and not lone_row:
        raise ModelOutputInvalid(
            f"The model answered {list(output.shape)} for {expected} images with {classes} classes each"
        )
    return output.reshape(expected, classes)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(size for size in shape if size != 1)


def rank(row: NDArray[Any], *, kind: Scores, top_k: int, labels: Sequence[str] | None = None) -> list[Prediction]:
    """The ``top_k`` best classes: score descending, then class index ascending.

    Args:
        row: ``[classes]`` scores of one image, of any float type.
        kind: what the scores are.
        top_k: how many classes are wanted; more than there are gives all.
        labels: the name of each class, where the model has names.

    Raises:
        ModelOutputInvalid: a score is NaN or infinite.
    """
    scores = np.asarray(row, dtype=np.float64)
    if not np.isfinite(scores).all():
        raise ModelOutputInvalid("The model gave a score that is NaN or infinite")
    best = _best(scores, min(top_k, len(scores)))
    probabilities = softmax(scores) if kind is Scores.LOGITS else scores
    return [_prediction(int(index), kind, float(scores[index]), float(probabilities[index]), labels) for index in best]


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of one row of finite logits, which sum to 1 whatever their size."""
    # Without the largest subtracted, logits above 709 overflow.
    powers: NDArray[np.float64] = np.exp(logits - logits.max())
    powers /= powers.sum()
    return powers


def _best(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """Indices of the ``count`` largest, best first, ties by index; without sorting the rest."""
    if count < len(scores):
        threshold = np.partition(scores, -count)[-count]
        # All ties at the threshold stay in, or a partition would choose among them at random.
        candidates = np.flatnonzero(scores >= threshold)
    else:
        candidates = np.arange(len(scores))
    order = np.argsort(-scores[candidates], kind="stable")
    best: NDArray[np.intp] = candidates[order[:count]]
    return best


def _prediction(
    class_id: int, kind: Scores, score: float, probability: float, labels: Sequence[str] | None
) -> Prediction:
    named = Prediction(class_id=class_id, class_name=labels[class_id] if labels else None)
    if kind is Scores.RAW:
        named["score"] = score
        return named
    if kind is Scores.LOGITS:
        named["logit"] = score
    named["probability"] = probability
    return named
