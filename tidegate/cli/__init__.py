"""The command ``tidegate``: what a person runs. Each command is a few lines over a module that does the work."""

from __future__ import annotations

import typer

from tidegate.cli.demo import demo
from tidegate.cli.jobs import jobs
from tidegate.cli.models import models
from tidegate.cli.triton import triton
from tidegate.cli.up import up

app = typer.Typer(
    help="A queue in front of a GPU: images in over REST, full micro-batches to Triton, answers back.",
    no_args_is_help=True,
    add_completion=False,
    # What went wrong is told in a sentence; a traceback is for bugs, and then a plain one is easier to pass on.
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(demo)
app.command()(triton)
app.add_typer(jobs, name="jobs")
app.add_typer(models, name="models")
