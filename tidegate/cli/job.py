"""``tidegate job`` and ``tidegate cancel``: single jobs, through the API."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from typer import Argument, Option

from tidegate.cli.address import IMPATIENT_SECONDS, ApiKey, ApiUrl, AsJson
from tidegate.cli.failures import FAILED, exit_code_of, leave_on_signals, told
from tidegate.cli.rows import job_document
from tidegate.client import Client, ClientError, Job, JobState
from tidegate.client.connection import DEFAULT_URL

#: How often a job that is watched is asked for, until it ends; its end is told at once.
LOOK_SECONDS = 1.0


def job(
    job_id: Annotated[str, Argument(metavar="ID")],
    *,
    watch: Annotated[bool, Option("--watch", help="Follow it until it has ended.")] = False,
    as_json: AsJson = False,
    api: ApiUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Show a job as it stands. It is a failure where the job has ended without a result."""
    leave_on_signals()
    with told(), Client(api, api_key=api_key, retry_seconds=IMPATIENT_SECONDS) as client:
        found = client.job(job_id)
        if watch:
            for state in _changes(found):
                typer.echo(json.dumps(job_document(state)) if as_json else _line(state))
        elif as_json:
            typer.echo(json.dumps(job_document(found.state), indent=2))
        if not as_json and (not watch or found.state.result):
            typer.echo(_description(found.state))
    if found.state.ended and found.state.result is None:
        raise typer.Exit(FAILED)


def cancel(
    job_ids: Annotated[list[str], Argument(metavar="ID")],
    *,
    as_json: AsJson = False,
    api: ApiUrl = DEFAULT_URL,
    api_key: ApiKey = None,
) -> None:
    """Cancel jobs that have not ended. One that runs is not interrupted, but its answer is dropped."""
    worst = 0
    with told(), Client(api, api_key=api_key, retry_seconds=IMPATIENT_SECONDS) as client:
        for job_id in job_ids:
            try:
                state = client.job(job_id).cancel()
            except ClientError as error:
                if error.status is None:
                    raise
                typer.echo(f"tidegate: {job_id}: {error}", err=True)
                worst = max(worst, exit_code_of(error))
            else:
                typer.echo(json.dumps(job_document(state)) if as_json else f"{state.id}\t{state.status}")
    if worst:
        raise typer.Exit(worst)


def _changes(found: Job) -> Iterator[JobState]:
    """The job as it is, and again whenever there is something new to tell, up to its end."""
    yield found.state
    while not found.state.ended:
        before = _line(found.state)
        try:
            found.wait(timeout=LOOK_SECONDS)
        except ClientError as error:
            # That it has ended without a result, or not yet, is what is told here.
            if error.job is None:
                raise
        if _line(found.state) != before:
            yield found.state


def _line(state: JobState) -> str:
    """What there is to tell of a job while it is watched."""
    place = f", {state.queue_position} before it" if state.queue_position is not None else ""
    reason = f" ({state.error.code}: {state.error.message})" if state.error else ""
    return f"{state.id}\t{state.status}{place}{reason}"


def _description(state: JobState) -> str:
    """All that the API tells of a job, a line each; what is unset is left out."""
    document = job_document(state)
    result = document.pop("result") or {"predictions": []}
    told = [(name, value) for name, value in document.items() if value not in (None, {}, [])]
    told += [("class", _prediction(prediction)) for prediction in result["predictions"]]
    width = max(len(name) for name, _ in told)
    return "\n".join(
        f"{name:<{width}}  {value if isinstance(value, str) else json.dumps(value)}" for name, value in told
    )


def _prediction(prediction: dict[str, Any]) -> str:
    name = prediction["class_name"] or str(prediction["class_id"])
    return name if prediction["probability"] is None else f"{prediction['probability']:.3f}  {name}"
