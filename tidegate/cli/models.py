"""``tidegate models``: puts the models' files into the model repository."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from tidegate.cli.failures import told
from tidegate.local import resource

models = typer.Typer(help="Put the files of the bundled models into a model repository.", no_args_is_help=True)

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
