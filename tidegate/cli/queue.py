"""``tidegate queue``: how much waits, for how long, and how fast it drains."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.table import Table
from typer import Option

from tidegate.backlog import Backlog, backlog
from tidegate.catalogue import read_catalogue
from tidegate.cli.address import AsJson
from tidegate.cli.failures import leave_on_signals, told
from tidegate.cli.output import table_console
from tidegate.ledger import Ledger
from tidegate.settings import load_settings
from tidegate.store import connect


def queue(
    *,
    watch: Annotated[bool, Option("--watch", help="Go on until Ctrl-C.")] = False,
    every: Annotated[float, Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show each model's queue, as it stands in Redis: for those who run Tidegate, since it is everybody's queue."""
    leave_on_signals()
    with told(), connect(settings := load_settings()) as client:
        ledger = Ledger(client, settings)
        if as_json:
            _print_json(ledger, every if watch else None)
        elif watch:
            _show_live(ledger, every)
        else:
            table_console().print(queue_table(_look(ledger)))


def _look(ledger: Ledger) -> list[Backlog]:
    known = read_catalogue(ledger.client, ledger.commands.settings)
    return ledger.run(backlog(sorted({*ledger.models(), *known})))


def _print_json(ledger: Ledger, every: float | None) -> None:
    """One document, or one a line for ever."""
    typer.echo(json.dumps([_document(each) for each in _look(ledger)]))
    while every is not None:
        time.sleep(every)
        typer.echo(json.dumps([_document(each) for each in _look(ledger)]))


def _show_live(ledger: Ledger, every: float) -> None:
    with Live(queue_table(_look(ledger)), console=table_console(), auto_refresh=False) as live:
        while True:
            time.sleep(every)
            live.update(queue_table(_look(ledger)), refresh=True)


def _document(each: Backlog) -> dict[str, Any]:
    return {**asdict(each), "drained_in_seconds": each.drained_in_seconds}


def queue_table(backlogs: Sequence[Backlog]) -> Table:
    """One row a model."""
    table = Table("model")
    for heading in ("waiting", "running", "oldest", "jobs/s", "drained in"):
        table.add_column(heading, justify="right")
    for each in backlogs:
        oldest = "" if each.oldest_seconds is None else _span(each.oldest_seconds)
        drained = each.drained_in_seconds
        table.add_row(
            each.model,
            str(each.waiting),
            str(each.running),
            oldest,
            f"{each.rate:.1f}",
            "unknown" if drained is None else _span(drained),
        )
    return table


def _span(seconds: float) -> str:
    """A time for people."""
    if seconds < 60:  # noqa: PLR2004 - a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s"
