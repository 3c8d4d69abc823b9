"""The command ``tidegate``: what a person runs. Each command is a few lines over a module that does the work."""

from __future__ import annotations

import typer

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

app = typer.Typer(
    help="A queue in front of a GPU: images in over REST, full micro-batches to Triton, answers back.",
    no_args_is_help=True,
    # What went wrong is told in a sentence; a traceback is for bugs, and then a plain one is easier to pass on.
    pretty_exceptions_enable=False,
)
app.command()(up)
app.command()(demo)
app.command()(triton)
for command in (submit, job, cancel, queue, doctor, completion):
    app.command()(command)
app.add_typer(jobs, name="jobs")
app.add_typer(keys, name="keys")
app.add_typer(models, name="models")
app.add_typer(webhooks, name="webhooks")
