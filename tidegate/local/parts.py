"""What the embedded stack is made of, as plain values: a part is a command, what it needs, and how to tell it is up.

``plan.py`` makes them, ``supervise.py`` runs them, ``readiness.py`` waits for them. Nothing here starts anything.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.errors import TidegateError

Probe = Callable[[], str | None]
"""Asks a part once, for a second at most: None when it is up, else what is missing, in words."""


class PartFailed(TidegateError):
    """A part could not start, did not get ready, died, or does not do what it should.

    Attributes:
        part: its name, as in the status file.
        advice: what a person can do about it.
        last_lines: the end of its output, oldest first; the supervisor, which keeps them, puts them in.
    """

    code = "part_failed"

    def __init__(self, part: str, message: str, *, advice: str) -> None:
        super().__init__(message)
        self.part = part
        self.advice = advice
        self.last_lines: tuple[str, ...] = ()


class Tier(enum.IntEnum):
    """Who is stopped before whom, lowest first."""

    FRONT = 1
    """Takes work from outside; ends first, so that nothing new comes in."""
    WORKERS = 2
    """Finishes what it runs, for which it needs the tier below."""
    GROUND = 3
    """Redis and Triton; end when nobody needs them any more."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One process of the stack.

    Attributes:
        name: unique; what messages and the status file call it.
        command: the program and its arguments.
        tier: when it is stopped.
        grace_seconds: how long it may take from SIGTERM to its end.
        ready: asked in this order; it is up when all are content.
        advice: what to do when it does not start.
        environ: what its environment has beyond ours.
        cwd: the folder it runs in; None for ours.
        address: where others reach it; None for a part that only calls others.
        port: the one in ``address``.
        also: other addresses by what they speak.
    """

    name: str
    command: tuple[str, ...]
    tier: Tier
    grace_seconds: float
    ready: tuple[Probe, ...]
    advice: str
    environ: Mapping[str, str] = field(default_factory=dict)
    cwd: Path | None = None
    address: str | None = None
    port: int | None = None
    also: Mapping[str, str] = field(default_factory=dict)
