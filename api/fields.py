"""From pydantic's findings to problems that name fields of ours and show nothing of what was sent."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any


def find_problems(findings: Sequence[Mapping[str, Any]], *, known: Collection[str] = ()) -> tuple[tuple[str, str], ...]:
    """Pairs of (JSON pointer, what is wrong), as InvalidField takes them.

    A field that nobody knows is not named, because its name is the client's own text.

    Args:
        findings: pydantic's ``error.errors()``.
        known: the fields there are, told to whoever sent one that is not.
    """
    problems = dict.fromkeys(_problem(finding, known) for finding in findings)
    return tuple(problems)


def _problem(finding: Mapping[str, Any], known: Collection[str]) -> tuple[str, str]:
    if finding["type"] == "extra_forbidden":
        hint = f"; known are {', '.join(known)}" if known else ""
        return "#", f"There is a field that is not known here{hint}."
    # The first step is a field of ours; a deeper one may be a key that the client made up.
    pointer = "/".join(["#", *(str(step) for step in finding["loc"][:1])])
    return pointer, str(finding["msg"]).removeprefix("Value error, ")
