"""``tidegate demo``: the whole stack for as long as it takes to classify a few photos."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from typer import Option

from tidegate.cli.classify import ADVICE, classify, open_client
from tidegate.cli.failures import SIGNALLED, leave_on_signals, told
from tidegate.cli.photos import example_photos, photos_in
from tidegate.cli.table import job_table
from tidegate.cli.up import ReadySeconds
from tidegate.local.options import PartName, StackOptions
from tidegate.local.parts import PartFailed

if TYPE_CHECKING:
    from tidegate.local.stack import RunningStack

NARROWEST = 100
"""Columns of the table where the output is no terminal, whose width would decide."""


def demo(
    *,
    images: Annotated[
        Path | None, Option(exists=True, file_okay=False, help="A folder of photos, in place of the bundled ones.")
    ] = None,
    timeout: ReadySeconds = 60,
) -> None:
    """Start the stack on free ports, classify some photos through it, print what came out, and end it."""
    leave_on_signals()
    with told():
        photos = photos_in(images) if images else example_photos()
        run_demo(photos, timeout_seconds=timeout)


def run_demo(photos: list[Path], *, timeout_seconds: float) -> None:
    """Run the stack and send it the photos.

    Raises:
        PartFailed: not every job succeeded, or as :func:`tidegate.local.stack.run_stack`.
        typer.Exit: a signal came.
        TidegateError: likewise.
    """
    from tidegate.local.stack import run_stack  # noqa: PLC0415 - needs an extra that other commands do without

    console = Console()
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)

    def session(stack: RunningStack) -> None:
        api_url = stack.addresses[PartName.API]
        console.print(f"The stack is up. Sending {len(photos)} photos to {api_url}/v1/jobs.")
        with open_client(api_url) as client:
            jobs = classify(photos, client=client, pause=stack.pause)
        console.print(job_table([photo.name for photo in photos], jobs))
        succeeded = sum(job["status"] == "succeeded" for job in jobs)
        if succeeded < len(jobs):
            raise PartFailed("worker-1", f"only {succeeded} of {len(jobs)} jobs succeeded", advice=ADVICE)

    console.print("Starting Redis, Triton, a worker and the API on this machine.")
    ending = run_stack(
        StackOptions(without=frozenset({PartName.OUTBOUND, PartName.FLOWER}), timeout_seconds=timeout_seconds), session
    )
    if ending.stopped_by:
        raise typer.Exit(SIGNALLED + ending.stopped_by)
