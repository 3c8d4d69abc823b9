"""All commands of ``tidegate``, as one typer application."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer
from typer import Option

from tidegate.cli.completion import completion
from tidegate.cli.demo import demo
from tidegate.cli.doctor import doctor
from tidegate.cli.job import cancel, job
from tidegate.cli.jobs import jobs
from tidegate.cli.keys import keys
from tidegate.cli.models import models
from tidegate.cli.queue import queue
from tidegate.cli.submit import submit
from tidegate.cli.triton import triton
from tidegate.cli.up import up
from tidegate.cli.webhooks import webhooks

#: As ``docs/cli.md`` tells them apart.
CLIENTS = "For those who use a Tidegate, through its API"
OPERATORS = "For those who run one, with its settings in the environment"

app = typer.Typer(
    no_args_is_help=True,
    # What went wrong is told in a sentence; a traceback is for bugs, and then a plain one is easier to pass on.
    pretty_exceptions_enable=False,
)


def _tell_version(wanted: bool) -> None:  # noqa: FBT001 - as typer calls it
    if not wanted:
        return
    try:
        typer.echo(f"tidegate {version('tidegate')}")
    except PackageNotFoundError:
        typer.echo("tidegate, from a checkout that is not installed")
    raise typer.Exit


@app.callback()
def _program(
    *,
    _version: Annotated[
        bool, Option("--version", callback=_tell_version, is_eager=True, help="Tell the version, and do no more.")
    ] = False,
) -> None:
    """A queue in front of a GPU: images in over REST, full micro-batches to Triton, answers back."""


for of_clients in (submit, job, cancel):
    app.command(rich_help_panel=CLIENTS)(of_clients)
app.add_typer(models, name="models", rich_help_panel=CLIENTS)
for of_operators in (up, demo, doctor, queue):
    app.command(rich_help_panel=OPERATORS)(of_operators)
app.add_typer(jobs, name="jobs", rich_help_panel=OPERATORS)
app.add_typer(keys, name="keys", rich_help_panel=OPERATORS)
app.add_typer(webhooks, name="webhooks", rich_help_panel=OPERATORS)
app.command(rich_help_panel=OPERATORS)(triton)
app.command()(completion)
