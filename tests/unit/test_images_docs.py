"""What the documentation says of images is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegate.formats import MEDIA_TYPES, ImageLimits
from worker.contract import SCALINGS, Fidelity, Interpolation
from worker.contract.parameters import NAMES

TEXT = (Path(__file__).parents[2] / "docs" / "images.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """First cell to the rest of each row of the first table under a heading."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table, heading
    cells = [line.strip("|\n ").split(" | ", 1) for line in table[0].splitlines()[2:]]
    return {first.strip(" `"): rest for first, rest in cells}


def test_docs_list_the_formats_and_their_media_types() -> None:
    """The table is the code's own."""
    listed = {name: tuple(re.findall(r"`([^`]+)`", rest.split(" | ")[0])) for name, rest in rows("Formats").items()}
    assert listed == {str(known): names for known, names in MEDIA_TYPES.items()}


def test_docs_list_every_parameter_that_touches_pixels() -> None:
    """No parameter is documented that does not exist, and none exists without a word."""
    assert set(rows("Resize")) == {f"tidegate.{name}" for name in NAMES - {"output", "scores"}}


@pytest.mark.parametrize(
    ("parameter", "words"),
    [("scaling", SCALINGS), ("interpolation", Interpolation), ("fidelity", Fidelity)],
)
def test_docs_list_every_value(parameter: str, words: list[str]) -> None:
    """Each word that a parameter may be is in its row."""
    row = rows("Resize")[f"tidegate.{parameter}"]
    assert {str(word) for word in words} <= set(re.findall(r"`(\w+)`", row))


def test_docs_give_the_default_limits() -> None:
    """The numbers are those of the code."""
    limits = ImageLimits()
    row = rows("Refusals")["image_too_large"]
    assert f"{limits.max_bytes // 2**20} MiB" in row
    assert f"{limits.max_pixels // 10**6} million pixels" in row
    assert f"{limits.max_side:,} pixels on a side" in row
    assert f"{limits.max_frames:,} frames" in row
