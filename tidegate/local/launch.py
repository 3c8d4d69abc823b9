"""Run a program that is told to end when whoever started it dies, even by ``kill -9``.

The stack's supervisor puts :func:`tied_to_parent` around the command of every part, so that no Redis, Triton
or worker outlives it and holds its port. The program takes the place of this one: same pid, no process more.

    python launch.py PARENT_PID COMMAND [ARGUMENT...]

Uses nothing but the standard library, because it runs in isolated mode, without the site-packages.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def tied_to_parent(command: Sequence[str]) -> list[str]:
    """Wrap a command so that it gets SIGTERM when the calling process dies.

    The process that calls this must be the one that starts the command, from a thread that lives as long as
    it does: the kernel watches the thread that forked. A shell in between must ``exec`` it.
    """
    return [sys.executable, "-I", "-S", __file__, str(os.getpid()), *command]


def die_with_parent(parent_pid: int, *, by: signal.Signals = signal.SIGTERM) -> None:
    """Have the kernel send ``by`` to this process when its parent dies; holds across exec.

    Args:
        parent_pid: who the parent should be.
        by: SIGTERM lets a part save and leave in order.

    Raises:
        OSError: the kernel refuses.
        ProcessLookupError: the parent is gone already.

    Source: prctl(2), PR_SET_PDEATHSIG.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(by), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    # A parent that died before the call above sends nothing any more.
    if os.getppid() != parent_pid:
        raise ProcessLookupError(f"process {parent_pid}, which started this one, is gone")


def main(arguments: list[str]) -> None:
    """Become ``arguments[1:]``, a child of process ``arguments[0]``."""
    try:
        die_with_parent(int(arguments[0]))
    except ProcessLookupError as gone:
        sys.exit(str(gone))
    os.execvp(arguments[1], arguments[1:])  # noqa: S606 - the supervisor's own command


if __name__ == "__main__":
    main(sys.argv[1:])
