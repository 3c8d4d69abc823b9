"""From the model's output to ranked predictions: pure functions over one answer of Triton.

Scores are ranked here and not by Triton's classification extension, which prints six decimals, sorts ties
in any order, and refuses half precision.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
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


def rank(
    scores: NDArray[Any], *, kind: Scores, top_k: Sequence[int], labels: Sequence[str] | None = None
) -> list[list[Prediction] | None]:
    """The best classes of each image: score descending, then class index ascending.

    All images at once, because numpy takes longer to be called than to do the work for one.

    Args:
        scores: ``[n, classes]``, of any float type.
        kind: what the scores are.
        top_k: how many classes are wanted of each image; more than there are gives all.
        labels: the name of each class, where the model has names.

    Returns:
        For each image its predictions, or None where a score is NaN or infinite.
    """
    wide = np.asarray(scores, dtype=np.float64)
    ranked: list[list[Prediction] | None] = [None] * len(wide)
    finite = np.flatnonzero(np.isfinite(wide).all(axis=1))
    if not len(finite):
        return ranked
    wide = wide[finite]
    probabilities = softmax(wide) if kind is Scores.LOGITS else wide
    best = _best(wide, min(max(top_k), wide.shape[1]))
    columns = zip(
        finite.tolist(),
        best.tolist(),
        np.take_along_axis(wide, best, axis=1).tolist(),
        np.take_along_axis(probabilities, best, axis=1).tolist(),
        strict=True,
    )
    for image, indices, values, chances in columns:
        firsts = islice(zip(indices, values, chances, strict=True), top_k[image])
        ranked[image] = [_prediction(index, kind, value, chance, labels) for index, value, chance in firsts]
    return ranked


def softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of rows of finite logits, each of which sums to 1 whatever their size."""
    # Without the largest subtracted, logits above 709 overflow.
    powers: NDArray[np.float64] = np.exp(logits - logits.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def _best(scores: NDArray[np.float64], count: int) -> NDArray[np.intp]:
    """``[n, count]`` indices of each row's largest, best first, ties by index; without sorting the rest."""
    if count == scores.shape[1]:
        return np.argsort(-scores, axis=1, kind="stable")
    thresholds = np.partition(scores, -count, axis=1)[:, -count]
    # All ties at the threshold stay in, or a partition would choose among them at random.
    rows, columns = np.nonzero(scores >= thresholds[:, None])
    order = np.lexsort((columns, -scores[rows, columns], rows))
    # Rows with ties have more than `count`: where each begins tells where its best are.
    begins = np.searchsorted(rows, np.arange(len(scores)))
    best: NDArray[np.intp] = columns[order[begins[:, None] + np.arange(count)]]
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
