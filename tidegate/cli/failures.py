"""How a command ends when something goes wrong: one plain message, and an exit code."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tidegate.client import ApiUnreachable, ClientError, RequestError, ThrottledError, WaitTimeout
from tidegate.client import UnavailableError as ApiUnavailable
from tidegate.errors import StoreUnavailable, TidegateError, UnavailableError
from tidegate.local.parts import PartFailed

FAILED = 1
"""Something that was asked for did not go well: a job failed, a part of the stack ended, a check found a fault."""
UNAVAILABLE = 3
"""The API or Redis cannot be reached, or is busy: the same command may go well later."""
REFUSED = 4
"""The API refuses what was asked for: there is no such job or model, the key is wrong, an option is."""
UNFINISHED = 5
"""The time for waiting was over before the job was."""
SIGNALLED = 128
"""Plus the signal's number: what a shell reports of a program that a signal ended."""


@contextmanager
def told() -> Iterator[None]:
    """Tell on stderr what went wrong inside, and leave with a code that is not 0.

    Raises:
        typer.Exit: in place of what was told.
    """
    try:
        yield
    except PartFailed as error:
        typer.echo(_report(error), err=True)
        raise typer.Exit(FAILED) from error
    except (TidegateError, ClientError) as error:
        advice = " TIDEGATE_REDIS_URL says where it is." if isinstance(error, StoreUnavailable) else ""
        typer.echo(f"tidegate: {error}{advice}", err=True)
        raise typer.Exit(exit_code_of(error)) from error
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in {"tidegate", "api", "worker"}:
            raise
        typer.echo(f"tidegate: {error.name} is not installed: pip install 'tidegate[local]'", err=True)
        raise typer.Exit(FAILED) from error
    except OSError as error:
        # A file that cannot be written is a person's to mend; any other is a bug of ours.
        if error.filename is None:
            raise
        typer.echo(f"tidegate: {error.filename}: {error.strerror}", err=True)
        raise typer.Exit(FAILED) from error


def exit_code_of(error: TidegateError | ClientError) -> int:
    """Which of the codes above tells of an error; ``docs/cli.md`` has them as a table."""
    if isinstance(error, UnavailableError | ApiUnreachable | ApiUnavailable | ThrottledError):
        return UNAVAILABLE
    if isinstance(error, WaitTimeout):
        return UNFINISHED
    # The error of a job that ended is no refusal: the command was carried out.
    refused = isinstance(error, RequestError) and error.job is None
    return REFUSED if refused else FAILED


def leave_on_signals() -> None:
    """Make SIGTERM and SIGHUP leave as Ctrl-C does, by an exception, so that temporary files are removed."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _leave(number: int, _frame: object) -> None:
    raise SystemExit(SIGNALLED + number)


def _report(error: PartFailed) -> str:
    """The part, what it printed last, and what to do."""
    lines = [f"tidegate: {error}"]
    if error.last_lines:
        lines += [f"The last lines of {error.part}:", *(f"    {line}" for line in error.last_lines)]
    return "\n".join([*lines, error.advice])
