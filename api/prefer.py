"""The ``Prefer`` header: how long a client would rather wait than poll.

Source: RFC 7240. Preferences are wishes: what is unknown, broken or repeated is ignored without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

#: Longest wait that is honoured, in seconds; a longer wish is honoured so far.
MAX_WAIT_SECONDS = 60

#: Few enough that int() stays cheap.
_MAX_DIGITS = 10
#: One preference with its parameters; a comma inside a quoted string, be it unfinished, does not end it.
_ELEMENT = re.compile(r'(?:[^,"]|"(?:[^"\\]|\\.)*"?)+')


@dataclass(frozen=True)
class Preferences:
    """The preferences that are known here.

    Attributes:
        respond_async: the client is content with a job that has not ended.
        wait_seconds: how long it would rather wait for the end, from the receipt of its request; None for not at all.
    """

    respond_async: bool = False
    wait_seconds: int | None = None

    @property
    def applied(self) -> str:
        """The value of ``Preference-Applied``; empty where nothing was asked for."""
        asked = ["respond-async"] if self.respond_async else []
        if self.wait_seconds is not None:
            asked.append(f"wait={self.wait_seconds}")
        return ", ".join(asked)


def parse_prefer(values: Iterable[str]) -> Preferences:
    """Read the values of all ``Prefer`` headers of a request, in their order."""
    found: dict[str, str] = {}
    for element in _ELEMENT.findall(",".join(values)):
        name, _, value = element.partition(";")[0].partition("=")
        found.setdefault(name.strip().lower(), value.strip().strip('"'))
    wait = found.get("wait", "")
    is_number = wait.isascii() and wait.isdigit() and len(wait) <= _MAX_DIGITS
    return Preferences("respond-async" in found, min(int(wait), MAX_WAIT_SECONDS) if is_number else None)
