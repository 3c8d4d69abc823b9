"""The flat list of figures that ``make bench`` ends with, and what each of them should be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.results import FOLDER, read_results

FILE = "summary.json"


@dataclass(frozen=True)
class Target:
    """A figure and its bound.

    Attributes:
        figure: the key in ``summary.json``.
        question: in words.
        at_least: the smallest value that will do, or None.
        at_most: the largest, or None.
        at_most_figure: another figure that this one must not exceed, or empty.
    """

    figure: str
    question: str
    at_least: float | None = None
    at_most: float | None = None
    at_most_figure: str = ""

    def bound(self, figures: Mapping[str, float]) -> str:
        """The bound in words."""
        if self.at_most_figure:
            return f"at most {figures.get(self.at_most_figure, float('nan')):g}"
        lower = "" if self.at_least is None else f"at least {self.at_least:g}"
        upper = "" if self.at_most is None else f"at most {self.at_most:g}"
        return ", ".join(filter(None, (lower, upper)))

    def is_met(self, figures: Mapping[str, float]) -> bool | None:
        """Whether the figure keeps its bound; None where it has none, or was not measured."""
        value = figures.get(self.figure)
        upper = figures.get(self.at_most_figure) if self.at_most_figure else self.at_most
        if value is None or (self.at_least is None and upper is None):
            return None
        return (self.at_least is None or value >= self.at_least) and (upper is None or value <= upper)


TARGETS = (
    Target("drain_vs_celery", "drain of 10,000 jobs, times plain Celery's rate", at_least=12),
    Target("drain_vs_celery_batches", "the same, times celery-batches'", at_least=8),
    Target("drain_vs_taskiq", "the same, times taskiq's", at_least=5),
    Target("drain_events_vs_celery_events", "drain with events and Flower, times Celery's with events", at_least=6),
    Target("queue_cpu_us_per_job", "processor time a job, µs", at_most=250),
    Target("celery_cpu_us_per_job", "the same of plain Celery"),
    Target("redis_commands_per_job", "commands to Redis a job, a script counted once", at_most=0.5),
    Target("decode_efficiency", "photos end to end, share of the decoder's own rate", at_least=0.85),
    Target("batch_fill", "fill of batches at saturation", at_least=0.95),
    Target("gpu_busy", "share of the time that the GPU is busy", at_least=0.95),
    Target("inflight_max", "most requests at Triton during a burst", at_most_figure="inflight_limit"),
    Target("inflight_limit", "the number of the worker's children"),
    Target("idle_overhead_p50_ms", "lone job beyond decode and inference, median, ms", at_most=8),
    Target("idle_overhead_p95_ms", "the same, 95th percentile", at_most=20),
    Target("submit_vs_bare", "submits, share of a bare route's rate", at_least=0.6),
    Target("submit_batch_vs_single", "images by the batch form, times the single form's rate", at_least=3),
    Target("poll_p99_ms", "GET of a job, 200 clients that submit and poll, 99th percentile, ms", at_most=50),
    Target("drain_100k_vs_1k", "drain with 100,000 queued, times that with 1,000", at_least=0.95),
    Target("redis_bytes_per_job", "bytes of Redis a queued job beside its image", at_most=1536),
    Target("drain_vs_gpu_rate", "drain after a burst, share of the GPU's rate", at_least=0.95, at_most=1.05),
)
#: Figures that the summary does not hold, though a target watches them.
_BESIDE_THE_SUMMARY = frozenset({"drain_vs_gpu_rate"})


def figures_of(results: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Every figure of every result."""
    return {name: value for document in results.values() for name, value in document["figures"].items()}


def summarize(results: Mapping[str, Mapping[str, Any]], *, failed: int = 0) -> dict[str, float]:
    """The flat object: the figures with a target, and the errors of all questions.

    Args:
        results: documents by question, as :func:`benchmarks.results.read_results` gives them.
        failed: questions that brought no result; each counts as an error.
    """
    figures = figures_of(results)
    wanted = [target.figure for target in TARGETS if target.figure not in _BESIDE_THE_SUMMARY]
    summary = {name: figures[name] for name in wanted if name in figures}
    return summary | {"errors": failed + sum(document["errors"] for document in results.values())}


def write_summary(*, failed: int = 0, folder: Path = FOLDER) -> dict[str, float]:
    """Write ``summary.json`` from the results that lie beside it, and give it."""
    summary = summarize(read_results(folder), failed=failed)
    (folder / FILE).write_text(json.dumps(summary, indent=2) + "\n")
    return summary
