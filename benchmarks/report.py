"""Tables of the results: for the terminal, and between markers in the documentation.

``python -m benchmarks.report`` rewrites what stands between ``<!-- benchmarks:NAME -->`` and
``<!-- /benchmarks:NAME -->`` in the documents, so that no figure there is typed by hand. NAME is ``summary``,
``headline``, ``machine``, or the name of a question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from benchmarks.machine import ROOT
from benchmarks.results import Result, read_results
from benchmarks.summary import TARGETS, figures_of

#: What README shows of the summary.
HEADLINE = frozenset(
    {
        "drain_vs_celery",
        "drain_vs_celery_batches",
        "drain_vs_taskiq",
        "drain_events_vs_celery_events",
        "decode_efficiency",
        "batch_fill",
        "gpu_busy",
        "idle_overhead_p50_ms",
    }
)
DOCUMENTS = (ROOT / "README.md", ROOT / "docs" / "performance.md")
_MARKED = re.compile(r"(<!-- benchmarks:(\w+) -->\n).*?(<!-- /benchmarks:\2 -->)", re.DOTALL)
_MET = {True: "yes", False: "no", None: ""}

Documents = Mapping[str, Mapping[str, Any]]
Rows = Sequence[Sequence[str]]


def series_table(result: Result) -> Table:
    """One question's series, for the terminal."""
    table = Table("series", "quantity", title=result.question)
    for heading in ("n", "p50", "p95", "p99", "errors"):
        table.add_column(heading, justify="right")
    for series in result.series:
        table.add_row(*_series_row(series.document()))
    table.caption = "  ".join(f"{name} = {value:.4g}" for name, value in result.figures.items())
    return table


def summary_table(results: Documents) -> Table:
    """Every figure with its target, for the terminal."""
    table = Table("figure", "what")
    for heading in ("measured", "target", "met"):
        table.add_column(heading, justify="right")
    for target, row in zip(TARGETS, summary_rows(results), strict=True):
        table.add_row(target.figure, *row)
    return table


def summary_rows(results: Documents) -> Rows:
    """What was asked, what was measured, the target, and whether it is met."""
    figures = figures_of(results)
    return [
        (
            target.question,
            _number(figures[target.figure]) if target.figure in figures else "not measured",
            target.bound(figures),
            _MET[target.is_met(figures)],
        )
        for target in TARGETS
    ]


def headline_rows(results: Documents) -> Rows:
    """The figures that README shows: what was asked, and what was measured."""
    rows = zip(TARGETS, summary_rows(results), strict=True)
    return [row[:2] for target, row in rows if target.figure in HEADLINE]


def markdown(name: str, results: Documents) -> str:
    """What belongs between the markers of this name; a note where it was not measured."""
    if name == "summary":
        return _markdown_table(("question", "measured", "target", "met"), summary_rows(results))
    if name == "headline":
        return _markdown_table(("question", "measured"), headline_rows(results))
    if name == "machine":
        return _machine_line(results)
    if name not in results:
        return "Not measured yet.\n"
    headings = ("series", "quantity", "n", "p50", "p95", "p99", "errors")
    return _markdown_table(headings, [_series_row(series) for series in results[name]["series"]])


def fill_in(text: str, results: Documents) -> str:
    """A document with every marked place brought up to date."""
    return _MARKED.sub(lambda found: f"{found[1]}{markdown(found[2], results)}{found[3]}", text)


def _series_row(series: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = [_number(series[share]) for share in ("p50", "p95", "p99")]
    return (series["name"], series["quantity"], f"{series['n']:,}", *numbers, str(series["errors"]))


def _number(value: float) -> str:
    """Three digits that count, and all digits before the point."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _markdown_table(headings: Sequence[str], rows: Rows) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _machine_line(results: Documents) -> str:
    if not results:
        return "Not measured yet.\n"
    newest = max(results.values(), key=lambda document: document["measured_at"])
    machine = newest["machine"]
    commits = sorted({document["commit"] for document in results.values()})
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}, "
        f"Python {machine['python']}; commit {', '.join(commits)}; {newest['measured_at'][:10]}.\n"
    )


def rewrite(documents: Sequence[Path] = DOCUMENTS) -> list[Path]:
    """Bring the documents that exist up to date; gives those that changed."""
    results = read_results()
    changed = []
    for document in documents:
        if not document.is_file():
            continue
        before = document.read_text()
        after = fill_in(before, results)
        if after != before:
            document.write_text(after)
            changed.append(document)
    return changed


if __name__ == "__main__":
    for file in rewrite():
        print(file.relative_to(ROOT))
