"""What the documentation says of models is what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tidegate.catalogue import ModelState
from tidegate.declarations import ModelDeclaration, TensorDeclaration
from tidegate.regions import MAX_COVER, MAX_REGIONS
from worker.contract import Color, Scores, read_contract
from worker.contract.parameters import NAMES

TEXT = (Path(__file__).parents[2] / "docs" / "models.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    """The text under a heading."""
    return TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def tables(heading: str) -> list[dict[str, str]]:
    """First cell to the rest of each row, of every table under a heading."""
    found = re.findall(r"(?:^\|.*\n)+", section(heading), re.MULTILINE)
    return [
        {cells[0].strip(" `"): cells[1] for cells in (line.strip("|\n ").split(" | ", 1) for line in lines[2:])}
        for lines in (table.splitlines() for table in found)
    ]


def test_docs_list_every_parameter() -> None:
    """No parameter is documented that does not exist, and none exists without a word."""
    (table,) = tables("Parameters")
    assert set(table) == {f"tidegate.{name}" for name in NAMES}


@pytest.mark.parametrize(("parameter", "words"), [("scores", Scores), ("color", Color)])
def test_docs_list_every_value(parameter: str, words: list[str]) -> None:
    """Each word that a parameter may be is in its row."""
    row = tables("Parameters")[0][f"tidegate.{parameter}"].lower()
    assert {f"`{word}`" for word in words} <= set(re.findall(r"`\w+`", row))


def test_docs_list_every_state() -> None:
    """The three words of the catalogue."""
    (table,) = tables("Many models")
    assert list(table) == list(ModelState)


def test_docs_list_every_field_of_a_declaration() -> None:
    """And those of a tensor, which two fields have."""
    *_, fields = tables("Other servers")
    assert set(fields) == set(ModelDeclaration.model_fields)
    assert set(re.findall(r"`(\w+)`", fields["input"])) == set(TensorDeclaration.model_fields)


def test_docs_show_a_declaration_that_is_one() -> None:
    """The example can be copied."""
    example = re.search(r"```json\n(.*?)```", section("Other servers"), re.DOTALL)
    assert example
    declared = {name: ModelDeclaration.model_validate(fields) for name, fields in json.loads(example[1]).items()}
    assert set(declared["my_model"].parameters) <= NAMES


def test_docs_show_a_configuration_that_keeps_the_contract() -> None:
    """The parameters of the example are read as they are meant."""
    example = re.search(r"```\n(backend.*?)```", section("Add a model"), re.DOTALL)
    assert example
    parameters = re.findall(r'key: "([\w.]+)" value \{ string_value: "([^"]+)" \}', example[1])
    assert len(parameters) == 3
    contract = read_contract(
        {
            "name": "my_model",
            "max_batch_size": 32,
            "input": [{"name": "image", "data_type": "TYPE_FP32", "format": "FORMAT_NCHW", "dims": [3, 224, 224]}],
            "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": [1000]}],
            "parameters": {name: {"string_value": value} for name, value in parameters},
        },
        {},
    )
    assert contract.scores is Scores.LOGITS


def test_docs_give_the_limits_of_regions() -> None:
    """The numbers are those of the code."""
    text = section("Regions")
    assert f"up to {MAX_REGIONS} boxes" in text
    assert MAX_COVER == 4
    assert "as many pixels as four images" in text
