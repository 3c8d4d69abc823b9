"""The class names of a model: those that its server told, or those that a person declared.

Triton is asked through its classification extension. Where it has no answer (half precision, no label file) and on
servers without that extension, ``TIDEGATE_MODELS`` may name the classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tidegate.declarations import ModelDeclaration
from tidegate.errors import ModelContractError
from worker.contract import ModelContract


def parse_labels(rows: NDArray[np.object_], contract: ModelContract) -> tuple[str, ...] | None:
    """Read ``score:index:label`` strings, in any order, into labels by index; None when no class has one.

    Raises:
        ModelContractError: some classes have a label and some have none.

    Source: Triton's classification extension, protocol/extension_classification.md.
    """
    labels: dict[int, str] = {}
    for row in np.ravel(rows):
        _, index, *label = bytes(row).decode("utf-8", "replace").split(":", 2)
        if label:
            labels[int(index)] = label[0]
    if not labels:
        return None
    if len(labels) < contract.classes:
        raise ModelContractError(
            f"model {contract.name} has {contract.classes} classes, but {len(labels)} labels "
            f"in {contract.label_file or 'its label file'}"
        )
    return tuple(labels[index] for index in range(contract.classes))


def with_labels(
    contract: ModelContract, told: Sequence[str] | None, declared: ModelDeclaration | None
) -> ModelContract:
    """The contract with the names that the server told or a person declared; without any where neither did.

    Raises:
        ModelContractError: the declared names cannot be read, are too many or too few, or differ from those told.
    """
    named = _declared_names(contract.name, declared) if declared is not None else None
    if named is not None and told is not None and tuple(told) != named:
        raise ModelContractError(f"model {contract.name} has other labels on the server than in TIDEGATE_MODELS")
    names = named or told
    return contract if names is None else contract.with_labels(names)


def _declared_names(model: str, declared: ModelDeclaration) -> tuple[str, ...] | None:
    if declared.labels_file is None:
        return declared.labels or None
    try:
        text = Path(declared.labels_file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelContractError(
            f"model {model} has a labels_file in TIDEGATE_MODELS that cannot be read: {error}"
        ) from error
    return tuple(text.rstrip("\n").split("\n"))
