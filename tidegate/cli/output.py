"""Tables on stdout."""

from __future__ import annotations

from rich.console import Console

#: Columns of a pipe, which has none: wide enough that no table is broken or cut for it.
PIPE_WIDTH = 1000


def table_console() -> Console:
    """Stdout for tables, at the width of the terminal where it is one."""
    console = Console()
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    return console
