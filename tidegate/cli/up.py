"""``tidegate up``: the whole stack on this machine, until Ctrl-C."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from tidegate.cli.failures import SIGNALLED, leave_on_signals, told
from tidegate.cli.photos import example_photos
from tidegate.concurrency import default_concurrency
from tidegate.local.options import PartName, StackOptions
from tidegate.settings import CLIENT_PREFIX, PREFIX

if TYPE_CHECKING:
    from tidegate.local.stack import RunningStack

Port = Annotated[int, Option(min=0, max=65_535, help="On loopback; 0 for any free one.")]
#: What tells the commands of ``tidegate`` in another shell where a part is.
FOUND_BY = {
    PartName.API: f"{CLIENT_PREFIX}URL",
    PartName.REDIS: f"{PREFIX}REDIS_URL",
    PartName.TRITON: f"{PREFIX}TRITON_URL",
}
ReadySeconds = Annotated[float, Option("--timeout", min=1, help="Seconds until every part must be up.")]


def up(
    *,
    api_port: Port = 8000,
    flower_port: Port = 5555,
    redis_port: Port = 0,
    triton_grpc_port: Port = 0,
    model_repository: Annotated[
        Path | None, Option(exists=True, file_okay=False, resolve_path=True, help="In place of the bundled one.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        Option(file_okay=False, resolve_path=True, help="Where Redis keeps its data. Unset, they go at the end."),
    ] = None,
    workers: Annotated[int, Option(min=1, help="Classify workers.")] = 1,
    concurrency: Annotated[
        int,
        Option(
            min=1,
            default_factory=default_concurrency,
            show_default="one more than cores",
            help="Batches that a worker runs at a time.",
        ),
    ],
    without: Annotated[
        list[PartName] | None, Option(help="Not started here, but reached by its TIDEGATE_ setting. May be repeated.")
    ] = None,
    status_file: Annotated[
        Path | None,
        Option(
            dir_okay=False, resolve_path=True, help="JSON with addresses, pids and environment; there while all is up."
        ),
    ] = None,
    timeout: ReadySeconds = 60,
) -> None:
    """Start Redis, Triton, workers, the API and Flower on this machine, and serve until Ctrl-C."""
    leave_on_signals()
    options = StackOptions(
        api_port=api_port,
        flower_port=flower_port,
        redis_port=redis_port,
        triton_grpc_port=triton_grpc_port,
        model_repository=model_repository,
        data_dir=data_dir,
        workers=workers,
        concurrency=concurrency,
        without=frozenset(without or ()),
        timeout_seconds=timeout,
    )
    with told():
        serve(options, status_file)


def serve(options: StackOptions, status_file: Path | None) -> None:
    """Run a stack until somebody ends it.

    Raises:
        typer.Exit: a signal came before it was ready, which is no success.
        TidegateError: as :func:`tidegate.local.stack.run_stack`.
    """
    from tidegate.local.stack import run_stack  # noqa: PLC0415 - needs an extra that other commands do without
    from tidegate.local.status import status_while_up  # noqa: PLC0415 - likewise

    typer.echo("Starting; this takes some seconds.")
    with status_while_up(status_file) as write_status:

        def session(stack: RunningStack) -> None:
            write_status(stack.status())
            typer.echo(announcement(stack.addresses))
            stack.serve()

        ending = run_stack(options, session)
    if ending.stopped_by and not ending.was_ready:
        raise typer.Exit(SIGNALLED + ending.stopped_by)


def announcement(addresses: Mapping[str, str]) -> str:
    """Where everything is, and what to paste into another shell: a photo to classify, and how the commands find it.

    Args:
        addresses: by the name of the part.
    """
    lines = ["", *(f"  {part:<10}{address}" for part, address in addresses.items())]
    if PartName.API in addresses:
        photo = shlex.quote(str(example_photos()[0]))
        lines += ["", f"  curl -sS -H 'Prefer: wait=10' -F image=@{photo} {addresses[PartName.API]}/v1/jobs"]
    known = [f"{name}={shlex.quote(addresses[part])}" for part, name in FOUND_BY.items() if part in addresses]
    lines += ["", f"  export {' '.join(known)}"]
    return "\n".join([*lines, "", "Tidegate is up; Ctrl-C ends it.", ""])
