"""What docs/reliability.md promises is tested, and what it measured stands in the results."""

from __future__ import annotations

import re
from pathlib import Path

from tests.chaos.page import PAGE, ROOT, measured


def test_every_test_that_is_named_exists() -> None:
    """A promise whose test was renamed or dropped is no promise."""
    sources = "\n".join(path.read_text() for path in Path(ROOT, "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", PAGE.read_text()))
    assert len(named) > 30
    assert {name for name in named if f"def {name}(" not in sources} == set()


def test_measured_figures_are_those_of_the_results() -> None:
    """The table is made by ``python -m tests.chaos.page`` from what ``make chaos`` and ``make soak`` wrote."""
    found = re.search(r"<!-- chaos -->\n(.*?)<!-- /chaos -->", PAGE.read_text(), re.DOTALL)
    assert found is not None
    assert found[1] == measured()
