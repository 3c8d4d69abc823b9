"""How outcomes are told: a line each for people, JSON for programs, and a CSV file for tables."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer

from tidegate.client import JobState, Outcome

CSV_COLUMNS = (
    "image", "job_id", "status", "model", "model_version", "rank", "class_id", "class_name", "probability", "logit",
    "error_code", "error_message",
)  # fmt: skip


def tell(outcome: Outcome[str], *, as_json: bool) -> None:
    """One line on stdout: the image, and what it shows or which job it is; a failure goes to stderr.

    As JSON every outcome is a line on stdout: ``{"image", "job", "error"}``.
    """
    if as_json:
        typer.echo(json.dumps(outcome_document(outcome)))
    elif outcome.error is not None:
        typer.echo(f"tidegate: {outcome.image}: {outcome.error.code}: {outcome.error}", err=True)
    elif outcome.job is not None and outcome.job.result is not None:
        top = outcome.job.result.top
        probability = "" if top.probability is None else f"{top.probability:.3f}"
        typer.echo(f"{outcome.image}\t{top.class_name or top.class_id}\t{probability}")
    elif outcome.job is not None:
        typer.echo(f"{outcome.image}\t{outcome.job.id}")


def outcome_document(outcome: Outcome[str]) -> dict[str, Any]:
    """What became of an image, for programs."""
    error = outcome.error
    return {
        "image": outcome.image,
        "job": job_document(outcome.job) if outcome.job else None,
        "error": {"code": error.code, "message": str(error), "retryable": error.retryable} if error else None,
    }


def job_document(job: JobState) -> dict[str, Any]:
    """A job as the API told of it."""
    document: dict[str, Any] = job.model_dump(mode="json")
    return document


def csv_rows(outcome: Outcome[str]) -> Iterator[dict[str, Any]]:
    """A row a prediction, best first; one row where there is none."""
    job, error = outcome.job, outcome.error
    row = {
        "image": outcome.image,
        "job_id": job.id if job else "",
        "status": job.status if job else "refused",
        "model": job.model if job else "",
        "model_version": (job.model_version if job else "") or "",
        "error_code": error.code if error else "",
        "error_message": str(error) if error else "",
    }
    predictions = job.result.predictions if job and job.result else ()
    if not predictions:
        yield row
    for rank, prediction in enumerate(predictions, start=1):
        yield {**row, "rank": rank, **prediction.model_dump(include=set(CSV_COLUMNS))}


@contextmanager
def open_csv(path: Path | None, *, append: bool) -> Iterator[Callable[[Outcome[str]], None]]:
    """A function that writes outcomes to a file, each whole and at once; does nothing without a file.

    Args:
        path: made anew, unless ``append``.
        append: go on with what an earlier run wrote.

    Raises:
        typer.BadParameter: the file cannot be written.
    """
    if path is None:
        yield lambda _: None
        return
    try:
        file = path.open("a" if append else "w", encoding="utf-8", errors="surrogateescape", newline="")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--csv") from error
    with file:
        yield _writer(file)


def _writer(file: IO[str]) -> Callable[[Outcome[str]], None]:
    table = csv.DictWriter(file, CSV_COLUMNS)
    if file.tell() == 0:
        table.writeheader()

    def write(outcome: Outcome[str]) -> None:
        table.writerows(csv_rows(outcome))
        file.flush()

    return write
