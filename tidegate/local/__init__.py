"""The embedded stack: a real Redis and a real Triton out of wheels, for a machine that has neither.

Nothing here starts a process. Each module tells where its part is and with which command and environment
it runs; whoever supervises the stack does the rest. Needs the extra ``tidegate[local]``.
"""

from __future__ import annotations

from pathlib import Path

from tidegate.errors import TidegateError


class MissingPart(TidegateError):
    """The embedded stack cannot run on this machine; the message says what is missing and how to get it."""

    code = "missing_part"


def resource(name: str) -> Path:
    """A folder that ships with Tidegate: ``backends``, ``model_repository`` or ``examples``.

    A wheel carries them inside this package; in a checkout they stand at the top of the tree.

    Raises:
        MissingPart: there is no such folder.
    """
    here = Path(__file__).resolve().parent
    # The package comes first: above an installed package lies site-packages, where anyone may have a "backends".
    for folder in (here / name, here.parents[1] / name):
        if folder.is_dir():
            return folder
    raise MissingPart(f"this installation of Tidegate has no folder {name!r}; install it again")
