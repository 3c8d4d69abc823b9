"""``tidegate completion``: the script that lets a shell complete our commands and options."""

from __future__ import annotations

import enum
import os
import subprocess
import sys
from typing import Annotated

import typer
from typer import Argument

#: By which the program is asked about itself. Source: https://click.palletsprojects.com/en/stable/shell-completion/
ASKED_BY = "_TIDEGATE_COMPLETE"


class Shell(enum.StrEnum):
    """Shells that can."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, Argument()]) -> None:
    """Print what a shell should read at its start, such as: eval "$(tidegate completion bash)"."""
    asked = {**os.environ, ASKED_BY: f"source_{shell}"}
    ended = subprocess.run([sys.executable, "-m", "tidegate.cli"], env=asked, check=False)
    raise typer.Exit(ended.returncode)
