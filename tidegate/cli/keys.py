"""``tidegate keys``: makes the keys by which the API knows its callers."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from typer import Argument

from tidegate.cli.address import AsJson
from tidegate.cli.failures import told
from tidegate.keys import new_key

keys = typer.Typer(help="Make API keys.", no_args_is_help=True)


@keys.callback()
def _group() -> None:
    """Make API keys."""


@keys.command()
def new(name: Annotated[str, Argument(help="Whose key it is.")], *, as_json: AsJson = False) -> None:
    """Make a key. It is printed this once; what is to be stored, in TIDEGATE_API_KEYS or its file, is the line."""
    with told():
        made = new_key(name)
    if as_json:
        typer.echo(json.dumps({"key": made.key, "line": made.line}))
    else:
        typer.echo(f"key   {made.key}\nline  {made.line}")
