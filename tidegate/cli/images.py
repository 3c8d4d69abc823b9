"""Which images a person means by the paths that were given."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import typer

from tidegate.cli.photos import SUFFIXES


def find_images(arguments: Sequence[str]) -> Iterator[str]:
    """The images, one after the other, in an order that is the same every time.

    A file stands for itself whatever it is called, a URL likewise; a folder for the images in and below it; a pattern
    that the shell has left alone for the files that it matches, where ``**`` goes through folders.

    Raises:
        typer.BadParameter: there is nothing at a path.
    """
    for argument in arguments:
        if argument.lower().startswith(("http://", "https://")) or Path(argument).is_file():
            yield argument
        elif Path(argument).is_dir():
            yield from _images_below(argument)
        else:
            yield from _matches(argument)


def _images_below(folder: str) -> Iterator[str]:
    for parent, folders, files in os.walk(folder):
        # The walk goes on in this order.
        folders.sort()
        yield from (str(Path(parent, file)) for file in sorted(files) if Path(file).suffix.lower() in SUFFIXES)


def _matches(pattern: str) -> Iterator[str]:
    found = False
    # Path.glob takes no pattern that begins at the root.
    for path in sorted(glob.iglob(pattern, recursive=True)):  # noqa: PTH207
        if Path(path).is_file():
            found = True
            yield path
    if not found:
        raise typer.BadParameter(f"there is no file at {pattern}", param_hint="PATH")
