"""What the benchmarks make of their results: percentiles, the summary, and the tables in the documentation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import DOCUMENTS, fill_in, markdown
from benchmarks.results import FOLDER, Result, Series, percentile, read_results
from benchmarks.summary import FILE, TARGETS, Target, figures_of, summarize, write_summary


def _written(folder: Path, question: str = "drain", *, errors: int = 0, **figures: float) -> None:
    series = Series("tidegate", "jobs/s", [4000.0, 5000.0, 4500.0], n=30_000, errors=errors)
    Result(question, [series], figures).write(folder)


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 3.0), (0.75, 4.0), (0.95, 4.8), (1.0, 5.0)])
def test_percentile_interpolates_between_neighbours(share: float, expected: float) -> None:
    """A percentile lies between the two samples next to it, in any order of the samples."""
    assert percentile([5, 1, 4, 2, 3], share) == pytest.approx(expected)


def test_percentile_of_one_sample_is_that_sample() -> None:
    """A single run has its own value for every percentile."""
    assert percentile([7.0], 0.99) == 7.0


def test_result_keeps_what_stands_behind_a_figure(tmp_path: Path) -> None:
    """The file holds machine, commit, versions, n, percentiles, errors and samples."""
    _written(tmp_path, drain_vs_celery=14.0)
    document = read_results(tmp_path)["drain"]
    assert document["machine"]["cores"] >= 1
    assert document["commit"]
    assert document["versions"]["celery"]
    (series,) = document["series"]
    assert (series["n"], series["runs"], series["errors"]) == (30_000, 3, 0)
    assert (series["p50"], series["samples"]) == (4500.0, [4000.0, 5000.0, 4500.0])


def test_summary_is_one_flat_object_of_the_figures_with_a_target(tmp_path: Path) -> None:
    """Figures of all questions stand side by side; those without a target are left out, errors are added up."""
    _written(tmp_path, "drain", errors=2, drain_vs_celery=14.0, drain_vs_celery_late_acks=11.0)
    _written(tmp_path, "burst", errors=1, inflight_max=2.0, inflight_limit=2.0, drain_vs_gpu_rate=0.99)
    write_summary(failed=1, folder=tmp_path)
    summary = json.loads((tmp_path / FILE).read_text())
    assert summary == {"drain_vs_celery": 14.0, "inflight_max": 2.0, "inflight_limit": 2.0, "errors": 4}


def test_summary_is_no_result(tmp_path: Path) -> None:
    """Reading the results passes over the summary that lies beside them."""
    _written(tmp_path, drain_vs_celery=14.0)
    write_summary(folder=tmp_path)
    assert list(read_results(tmp_path)) == ["drain"]


@pytest.mark.parametrize(
    ("target", "value", "met"),
    [
        (Target("x", "", at_least=12), 12.0, True),
        (Target("x", "", at_least=12), 11.9, False),
        (Target("x", "", at_most=250), 250.5, False),
        (Target("x", "", at_least=0.95, at_most=1.05), 1.0, True),
        (Target("x", "", at_least=0.95, at_most=1.05), 1.06, False),
        (Target("x", "", at_most_figure="limit"), 2.0, True),
        (Target("x", "", at_most_figure="limit"), 3.0, False),
        (Target("x", ""), 3.0, None),
    ],
)
def test_target_is_met_within_its_bounds(target: Target, value: float, met: bool | None) -> None:  # noqa: FBT001
    """A bound may be reached and not passed; a figure without one is neither met nor missed."""
    assert target.is_met({"x": value, "limit": 2.0}) is met


def test_target_without_a_measurement_is_not_met() -> None:
    """What was not measured is not claimed."""
    assert Target("x", "", at_least=1).is_met({}) is None


def test_markers_are_filled_from_the_results_and_nothing_else_changes(tmp_path: Path) -> None:
    """Only what stands between the markers is rewritten, and a second time changes nothing."""
    _written(tmp_path, drain_vs_celery=14.0)
    results = read_results(tmp_path)
    text = "before\n<!-- benchmarks:drain -->\nold\n<!-- /benchmarks:drain -->\nafter\n"
    filled = fill_in(text, results)
    assert filled.startswith("before\n<!-- benchmarks:drain -->\n| series |")
    assert "| tidegate | jobs/s | 30,000 | 4,500 |" in filled
    assert "old" not in filled
    assert filled.endswith("<!-- /benchmarks:drain -->\nafter\n")
    assert fill_in(filled, results) == filled


def test_summary_table_says_which_targets_are_met(tmp_path: Path) -> None:
    """Each target has a row with its bound and its verdict, and one that was not measured says so."""
    _written(tmp_path, drain_vs_celery=14.0, drain_vs_taskiq=4.0)
    table = markdown("summary", read_results(tmp_path)).splitlines()
    assert len(table) == 2 + len(TARGETS)
    assert any("| 14 | at least 12 | yes |" in row for row in table)
    assert any("| 4 | at least 5 | no |" in row for row in table)
    assert any("| not measured | at least 8 |  |" in row for row in table)


@pytest.mark.parametrize("document", [document for document in DOCUMENTS if document.is_file()], ids=lambda d: d.name)
def test_documentation_says_what_was_measured(document: Path) -> None:
    """Every table in the documentation is what its result file gives; ``python -m benchmarks.report`` makes it so."""
    text = document.read_text()
    assert fill_in(text, read_results()) == text


def test_committed_summary_follows_from_the_committed_results() -> None:
    """The figures in ``summary.json`` are those of the results beside it, none edited by hand."""
    results = read_results()
    file = FOLDER / FILE
    if not file.is_file():
        pytest.skip("nothing was measured yet")
    summary = json.loads(file.read_text())
    assert summary == summarize(results, failed=int(summary["errors"]) - _errors(results))
    assert figures_of(results).keys() >= summary.keys() - {"errors"}


def _errors(results: dict[str, dict[str, Any]]) -> int:
    return sum(document["errors"] for document in results.values())
