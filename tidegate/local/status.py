"""The status file: where a running stack's parts are, for whoever joins or watches it from outside."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.local.parts import Part


def describe(parts: Sequence[Part], *, pid: Callable[[Part], int], environ: Mapping[str, str]) -> dict[str, Any]:
    """What the status file says.

    Args:
        parts: those that run.
        pid: tells the process id of a part.
        environ: what a program started by hand needs in its environment to join the stack.
    """
    return {
        "parts": {
            part.name: {"url": part.address, "port": part.port, "pid": pid(part), "also": dict(part.also)}
            for part in parts
        },
        "environment": dict(environ),
    }


@contextmanager
def status_while_up(file: Path | None) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """Give a function that writes the file, and see to it that none is there before that, or after the block.

    Args:
        file: where; None for nowhere.

    Raises:
        OSError: the folder does not exist or cannot be written.
    """
    if file is None:
        yield lambda _status: None
        return
    file.unlink(missing_ok=True)
    try:
        yield partial(_write, file)
    finally:
        file.unlink(missing_ok=True)


def _write(file: Path, status: Mapping[str, Any]) -> None:
    """In one step, so that whoever finds the file finds all of it."""
    with tempfile.NamedTemporaryFile("w", dir=file.parent, prefix=f".{file.name}-", delete=False) as draft:
        json.dump(status, draft, indent=2)
        draft.write("\n")
    Path(draft.name).replace(file)
