"""``tidegate jobs``: what waits, runs and failed; and the way back for jobs that failed for a cause of ours."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from tidegate.cli.failures import FAILED, told
from tidegate.inventory import Inventory, Listed
from tidegate.jobs import JobRecord
from tidegate.ledger import Ledger
from tidegate.settings import load_settings
from tidegate.store import connect

jobs = typer.Typer(help="Look at jobs, and run failed ones again.", no_args_is_help=True)

AsJson = Annotated[bool, Option("--json", help="One JSON document, for programs.")]


@jobs.command("list")
def list_jobs(
    *,
    state: Annotated[Listed, Option(help="Of failed jobs, those that failed for a cause of ours.")] = Listed.FAILED,
    code: Annotated[str | None, Option(help="Only jobs that failed with this code, such as worker_lost.")] = None,
    model: Annotated[str | None, Option(help="Only jobs of this model.")] = None,
    limit: Annotated[int, Option(min=1, help="Most jobs to show.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List jobs that wait, run, or failed and can be run again."""
    with told(), _ledger() as ledger:
        found = Inventory(ledger).list_jobs(state, model=model, code=code, limit=limit)
    if as_json:
        typer.echo(json.dumps([job_document(job) for job in found], indent=2))
    else:
        Console().print(job_list(found))


@jobs.command()
def show(job_id: Annotated[str, Argument(metavar="ID")], *, as_json: AsJson = False) -> None:
    """Show all that the ledger knows of a job."""
    with told(), _ledger() as ledger:
        job = ledger.get(job_id)
    if job is None:
        typer.echo(f"tidegate: {job_id} {_REFUSALS['unknown']}", err=True)
        raise typer.Exit(FAILED)
    document = job_document(job)
    if as_json:
        typer.echo(json.dumps(document, indent=2))
        return
    width = max(map(len, document))
    for name, value in document.items():
        typer.echo(f"{name:<{width}}  {value if isinstance(value, str) else json.dumps(value)}")


@jobs.command()
def requeue(job_ids: Annotated[list[str], Argument(metavar="ID")]) -> None:
    """Run failed jobs again, each as a new job, whose id is printed after the old one."""
    job_ids = list(dict.fromkeys(job_ids))
    with told(), _ledger() as ledger:
        requeued = Inventory(ledger).requeue(job_ids)
    for job_id, item in zip(job_ids, requeued, strict=True):
        if item.job_id:
            typer.echo(f"{job_id} {item.job_id}")
        else:
            typer.echo(f"tidegate: {job_id} {_REFUSALS[item.state]}", err=True)
    if not all(item.job_id for item in requeued):
        raise typer.Exit(FAILED)


_REFUSALS = {
    "unknown": "is no job, or no longer kept",
    "gone": "cannot be run again: its image is not kept",
    "not_failed": "has not failed",
}


@contextmanager
def _ledger() -> Iterator[Ledger]:
    """The ledger that the environment names."""
    settings = load_settings()
    with connect(settings) as client:
        yield Ledger(client, settings)


def job_list(found: Sequence[JobRecord]) -> Table:
    """One row a job."""
    table = Table("id", "model", "state", "attempts", "since", "why")
    for job in found:
        since = job.finished_ms or job.started_ms or job.created_ms
        why = f"{job.error['code']}: {job.error['message']}" if job.error else ""
        table.add_row(job.id, job.model, job.state, str(job.attempts), _moment(since), why)
    return table


def job_document(job: JobRecord) -> dict[str, Any]:
    """What there is to tell of a job, times as RFC 3339; what is unset is left out."""
    document = {name: value for name, value in asdict(job).items() if value not in (None, {}, False)}
    for name in [name for name in document if name.endswith("_ms")]:
        document[name.removesuffix("_ms") + "_at"] = _moment(document.pop(name))
    return document


def _moment(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
