"""Class names: as Triton tells them, and as a person declares them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from tests.unit.contracts import contract
from tidegate.declarations import ModelDeclaration
from tidegate.errors import ModelContractError
from worker.labels import parse_labels, with_labels

MODEL = contract(output=[3])


def rows(*texts: str) -> NDArray[np.object_]:
    """An answer of the classification extension to one image."""
    return np.array([[text.encode() for text in texts]], np.object_)


def test_labels_come_in_the_order_of_their_classes() -> None:
    """Triton sorts by score; a label may hold colons, spaces and letters of any script."""
    assert parse_labels(rows("9.1:2:größe: 5", "3.0:0:a b", "-inf:1:"), MODEL) == ("a b", "", "größe: 5")


def test_no_label_at_all_is_no_labels() -> None:
    """A model without a label file is a good one."""
    assert parse_labels(rows("9.1:2", "3.0:0", "1.0:1"), MODEL) is None


def test_some_labels_are_a_mistake_in_the_file() -> None:
    """The sentence names the model, the file and both numbers."""
    with pytest.raises(ModelContractError, match=r"model probe has 3 classes, but 2 labels in labels\.txt"):
        parse_labels(rows("9.1:2", "3.0:0:a", "1.0:1:b"), MODEL)


def test_declared_labels_stand_in_for_those_that_nobody_tells(tmp_path: Path) -> None:
    """Written in the settings or in a file; a last line may end or not, and Windows may have written it."""
    inline = ModelDeclaration(labels=("a", "b", "c"))
    file = tmp_path / "labels.txt"
    file.write_bytes("ä b\r\nb\r\nc\r\n".encode())
    assert with_labels(MODEL, None, inline).labels == ("a", "b", "c")
    assert with_labels(MODEL, None, ModelDeclaration(labels_file=str(file))).labels == ("ä b", "b", "c")
    assert with_labels(MODEL, None, ModelDeclaration()).labels is None
    assert with_labels(MODEL, None, None).labels is None


def test_labels_of_both_must_agree() -> None:
    """What the server tells is not overruled in silence."""
    told = ("a", "b", "c")
    assert with_labels(MODEL, told, ModelDeclaration(labels=told)).labels == told
    with pytest.raises(ModelContractError, match="model probe has other labels on the server than in TIDEGATE_MODELS"):
        with_labels(MODEL, told, ModelDeclaration(labels=("a", "b", "x")))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_declared_labels_must_be_as_many_as_classes(count: int) -> None:
    """Neither more nor fewer."""
    declared = ModelDeclaration(labels=("x",) * count)
    with pytest.raises(ModelContractError, match=f"model probe has 3 classes, but {count} labels"):
        with_labels(MODEL, None, declared)


def test_labels_are_declared_in_one_place() -> None:
    """Two lists could differ."""
    with pytest.raises(ValidationError, match="labels and labels_file exclude each other"):
        ModelDeclaration(labels=("a",), labels_file="/labels.txt")
