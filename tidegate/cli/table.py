"""The table of what became of the demo's photos."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table


def job_table(photos: Sequence[str], jobs: Sequence[dict[str, Any]]) -> Table:
    """One row a photo: what it shows, how long each step took, and how many shared its batch.

    Args:
        photos: file names.
        jobs: as the API returned them when they had ended, in the same order.
    """
    table = Table("photo", "top classes", caption="times in milliseconds; batch: images in the same call to Triton")
    for heading in ("queued", "preprocess", "infer", "total", "batch"):
        table.add_column(heading, justify="right")
    for photo, job in zip(photos, jobs, strict=True):
        table.add_row(photo, _outcome(job), *_timings(job), _batch(job), end_section=True)
    return table


def _outcome(job: dict[str, Any]) -> str:
    if job["status"] != "succeeded":
        error = job["error"]
        return f"{job['status']}: {error['message']}" if error else job["status"]
    return "\n".join(
        f"{prediction['probability']:.3f} {prediction['class_name']}" for prediction in job["result"]["predictions"]
    )


def _timings(job: dict[str, Any]) -> list[str]:
    timings = job["timings"] or {}
    spans = (timings.get(f"{span}_ms") for span in ("queued", "preprocess", "infer", "total"))
    return ["" if span is None else f"{span:.1f}" for span in spans]


def _batch(job: dict[str, Any]) -> str:
    return str(job["batch"]["size"]) if job["batch"] else ""
