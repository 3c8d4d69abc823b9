"""``tidegate models``: lists the models that are served, and puts models' files into the model repository."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from typer import Argument, Option

from tidegate.cli.address import IMPATIENT_SECONDS, ApiKey, ApiUrl, AsJson
from tidegate.cli.failures import told
from tidegate.cli.output import table_console
from tidegate.client import Client, Model
from tidegate.client.connection import DEFAULT_URL
from tidegate.local import resource

models = typer.Typer()

Repository = Annotated[
    Path | None,
    Option(exists=True, file_okay=False, resolve_path=True, help="In place of the bundled model repository."),
]


class Buildable(enum.StrEnum):
    """Models that are made from weights in a Python package."""

    EFFICIENTNET_LITE0 = "efficientnet_lite0"


class Fetchable(enum.StrEnum):
    """Models whose file comes from the internet."""

    DENSENET_ONNX = "densenet_onnx"


@models.callback(invoke_without_command=True)
def list_models(
    context: typer.Context, *, as_json: AsJson = False, api: ApiUrl = DEFAULT_URL, api_key: ApiKey = None
) -> None:
    """List the models that the API knows, or put the files of bundled ones into a model repository."""
    if context.invoked_subcommand is not None:
        return
    with told(), Client(api, api_key=api_key, retry_seconds=IMPATIENT_SECONDS) as client:
        found = client.models()
    if as_json:
        typer.echo(json.dumps([model.model_dump(mode="json") for model in found], indent=2))
    else:
        table_console().print(model_table(found))


def model_table(found: Sequence[Model]) -> Table:
    """One row a model."""
    table = Table("model", "state", "versions", "classes", "batch", "input", "why not")
    for model in found:
        versions = ", ".join(model.versions)
        row = (str(model.classes), str(model.batch_limit), model.input, model.reason or "")
        table.add_row(model.name, model.state, versions, *row)
    return table


@models.command()
def build(
    name: Annotated[Buildable, Argument()] = Buildable.EFFICIENTNET_LITE0, *, repository: Repository = None
) -> None:
    """Make a model's file from the weights that were installed with Tidegate."""
    with told():
        from tidegate.local.models import efficientnet_lite0  # noqa: PLC0415 - needs an extra, as below

        builders = {Buildable.EFFICIENTNET_LITE0: efficientnet_lite0.build}
        typer.echo(builders[name](repository or resource("model_repository")))


@models.command()
def fetch(name: Annotated[Fetchable, Argument()], *, repository: Repository = None) -> None:
    """Fetch a model's file from where it was published."""
    with told():
        from tidegate.local.models import densenet_onnx  # noqa: PLC0415

        fetchers = {Fetchable.DENSENET_ONNX: densenet_onnx.fetch}
        typer.echo(fetchers[name](repository or resource("model_repository")))
