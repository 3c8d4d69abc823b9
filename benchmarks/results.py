"""What a question brought, and the file it is kept in.

A :class:`Result` holds one :class:`Series` of samples a contestant or condition, and the figures that follow
from them. ``benchmarks/results/<question>.json`` is written whole, so that a figure in the documentation can be
followed to the samples behind it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import commit, machine, versions

FOLDER = Path(__file__).parent / "results"
#: Samples that are written out for each series; beyond, only their percentiles are.
KEPT_SAMPLES = 50


def percentile(samples: Sequence[float], share: float) -> float:
    """The value that this share of the samples does not exceed, interpolated between neighbours.

    Args:
        samples: at least one, in any order.
        share: 0 to 1.

    Source: definition 7 of Hyndman and Fan, Sample Quantiles in Statistical Packages, 1996; numpy's default.
    """
    ordered = sorted(samples)
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True)
class Series:
    """Samples of one quantity, for one contestant or condition.

    Attributes:
        name: of the contestant or condition, such as ``tidegate`` or ``batches of 8``.
        quantity: what was measured, with its unit, such as ``jobs/s``.
        samples: at least one.
        n: how many jobs, images or requests stand behind all samples together.
        errors: how many of them ended badly or were answered wrongly.
    """

    name: str
    quantity: str
    samples: Sequence[float]
    n: int
    errors: int = 0

    @property
    def median(self) -> float:
        """The middle sample."""
        return statistics.median(self.samples)

    def document(self) -> dict[str, Any]:
        """The series as it is written."""
        shares = {f"p{share}": round(percentile(self.samples, share / 100), 4) for share in (50, 95, 99)}
        kept = {"samples": [round(sample, 4) for sample in self.samples]} if len(self.samples) <= KEPT_SAMPLES else {}
        return {
            "name": self.name,
            "quantity": self.quantity,
            "n": self.n,
            "runs": len(self.samples),
            **shares,
            "errors": self.errors,
            **kept,
        }


@dataclass(frozen=True)
class Result:
    """One question's answer.

    Attributes:
        question: name of the script.
        figures: by the flat keys of ``summary.json`` and further ones of the question's own.
        conditions: sizes and choices that a reader must know.
        peers: versions of the peers, as their environments tell them.
    """

    question: str
    series: Sequence[Series]
    figures: Mapping[str, float]
    conditions: Mapping[str, Any] = field(default_factory=dict)
    peers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def errors(self) -> int:
        """Wrong or bad ends over all series."""
        return sum(series.errors for series in self.series)

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the result with the machine it was measured on, and return the file."""
        folder.mkdir(parents=True, exist_ok=True)
        document = {
            "question": self.question,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit(),
            "machine": machine(),
            "versions": versions() | {name: dict(found) for name, found in self.peers.items()},
            "conditions": dict(self.conditions),
            "series": [series.document() for series in self.series],
            "figures": {name: round(value, 4) for name, value in self.figures.items()},
            "errors": self.errors,
        }
        file = folder / f"{self.question}.json"
        file.write_text(json.dumps(document, indent=2) + "\n")
        return file


def read_results(folder: Path = FOLDER) -> dict[str, dict[str, Any]]:
    """Every result in a folder, by question; the summary is none."""
    documents = (json.loads(file.read_text()) for file in sorted(folder.glob("*.json")) if file.stem != "summary")
    return {document["question"]: document for document in documents}
