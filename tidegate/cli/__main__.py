"""The program ``tidegate``, also as ``python -m tidegate.cli`` for where the script is not on the PATH.

Whoever installs the client alone gets the script with it, but not what the commands need. So this module imports
nothing of theirs before it is certain that it is there.
"""

from __future__ import annotations

import sys

#: The same as in ``tidegate/cli/failures.py``, which may not be importable.
FAILED = 1


def main() -> None:
    """Run the command line; where its packages are not installed, say which extra brings them."""
    try:
        from tidegate.cli.commands import app  # noqa: PLC0415 - see above
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "tidegate":
            raise
        lacking = f"tidegate: the command line needs {error.name}, which is not installed: pip install 'tidegate[core]'"
        print(lacking, file=sys.stderr)  # noqa: T201 - typer, which would do it, may be what is missing
        sys.exit(FAILED)
    app(prog_name="tidegate")


if __name__ == "__main__":
    main()
