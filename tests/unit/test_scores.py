"""From the model's output to ranked predictions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from tidegate.errors import ModelOutputInvalid
from worker.contract import Scores
from worker.scores import Prediction, rank, softmax, split_rows


def row(*scores: float) -> NDArray[np.float32]:
    """One image's scores."""
    return np.array(scores, dtype=np.float32)


def ranked(scores: NDArray[Any], **options: Any) -> list[Prediction]:
    """The predictions of one image."""
    (predictions,) = rank(scores[None], top_k=[options.pop("top_k")], **options)
    assert predictions is not None
    return predictions


def test_rank_gives_logits_with_their_softmax() -> None:
    """Probabilities come from all classes, not only from those that are shown."""
    predictions = ranked(row(1.0, 3.0, 2.0), kind=Scores.LOGITS, top_k=2, labels=("a", "b", "c"))
    assert [(p["class_id"], p["class_name"], p["logit"]) for p in predictions] == [(1, "b", 3.0), (2, "c", 2.0)]
    assert [p["probability"] for p in predictions] == pytest.approx([0.66524096, 0.24472847])


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Scores.PROBABILITIES, {"class_id": 0, "class_name": None, "probability": 0.75}),
        (Scores.RAW, {"class_id": 0, "class_name": None, "score": 0.75}),
    ],
)
def test_rank_claims_no_more_than_the_model_does(kind: Scores, expected: dict[str, Any]) -> None:
    """A number is only called a logit or a probability where the configuration says so."""
    assert ranked(row(0.75, 0.25), kind=kind, top_k=1) == [expected]


@given(
    scores=st.lists(st.integers(-3, 3), min_size=1, max_size=60),
    top_k=st.integers(1, 70),
)
def test_rank_orders_by_score_and_then_by_index(scores: list[int], top_k: int) -> None:
    """Ties never depend on a sort's mood: the lower index comes first, also at the cut."""
    predictions = ranked(np.array(scores, dtype=np.float64), kind=Scores.RAW, top_k=top_k)
    expected = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[:top_k]
    assert [p["class_id"] for p in predictions] == expected


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_rank_widens_half_precision(dtype: Any) -> None:
    """Softmax over 1,000 classes sums to one whatever type the model answers in."""
    scores = np.linspace(-8, 8, 1000).astype(dtype)
    predictions = ranked(scores, kind=Scores.LOGITS, top_k=1000)
    assert sum(p["probability"] for p in predictions) == pytest.approx(1.0, abs=1e-9)
    assert predictions[0]["class_id"] == int(np.argmax(scores.astype(np.float64)))
    assert type(predictions[0]["logit"]) is float


def test_softmax_survives_logits_of_any_size() -> None:
    """Logits beyond what an exponential can hold still give probabilities."""
    np.testing.assert_allclose(softmax(np.array([1e4, 1e4, -1e4])), [0.5, 0.5, 0.0])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", list(Scores))
def test_rank_refuses_rows_that_are_not_numbers(bad: float, kind: Scores) -> None:
    """NaN and infinity fail their own job instead of breaking its JSON, and leave the others' answers as they are."""
    good = row(1.0, 3.0, 2.0)
    first, second, third = rank(np.stack([good, row(1.0, bad, 2.0), good]), kind=kind, top_k=[1, 1, 1])
    assert second is None
    assert first == third == ranked(good, kind=kind, top_k=1)


@given(
    scores=arrays(np.float64, (4, 9), elements=st.integers(-3, 3)),
    top_k=st.lists(st.integers(1, 12), min_size=4, max_size=4),
)
def test_rank_gives_each_image_what_it_would_get_alone(scores: NDArray[np.float64], top_k: list[int]) -> None:
    """Neither the neighbours' scores nor how many classes they want change an image's predictions."""
    together = rank(scores, kind=Scores.LOGITS, top_k=top_k)
    assert together == [
        ranked(one, kind=Scores.LOGITS, top_k=wanted) for one, wanted in zip(scores, top_k, strict=True)
    ]


@pytest.mark.parametrize(
    ("shape", "expected", "classes"),
    [
        ((3, 10), 3, 10),
        ((3, 10, 1, 1), 3, 10),
        ((3, 1, 10), 3, 10),
        ((1, 10), 1, 10),
        ((10,), 1, 10),
        ((10, 1, 1), 1, 10),
        ((3, 1), 3, 1),
        ((3,), 3, 1),
        ((1,), 1, 1),
    ],
)
def test_split_rows_gives_each_image_its_own(shape: tuple[int, ...], expected: int, classes: int) -> None:
    """Any honest shape becomes one row an image, in order, without a copy."""
    output = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    rows = split_rows(output, expected, classes)
    assert rows.shape == (expected, classes)
    assert rows.ravel().tolist() == output.ravel().tolist()
    assert np.shares_memory(rows, output)


@pytest.mark.parametrize(
    ("shape", "expected", "classes"),
    [
        ((2, 10), 3, 10),
        ((4, 10), 3, 10),
        ((3, 9), 3, 10),
        ((10, 3), 3, 10),
        ((30,), 3, 10),
        ((1, 30), 3, 10),
        ((3, 2, 5), 3, 10),
        ((0, 10), 1, 10),
        ((), 1, 10),
        ((9,), 1, 10),
    ],
)
def test_split_rows_refuses_an_answer_of_another_size(shape: tuple[int, ...], expected: int, classes: int) -> None:
    """Rows are never given to images by guess, also not where the count happens to fit."""
    with pytest.raises(ModelOutputInvalid, match=f"for {expected} images with {classes} classes"):
        split_rows(np.zeros(shape), expected, classes)
