"""What a look at something found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """How good that is."""

    FINE = "fine"
    """As it should be."""
    WARNING = "warning"
    """Tidegate runs, but somebody should know."""
    FAULT = "fault"
    """Tidegate does not run like this, or loses what it has accepted."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        subject: what was looked at, in a word or two.
        verdict: how good it is.
        facts: what was found.
        advice: what to do; empty where there is nothing to do.
    """

    subject: str
    verdict: Verdict
    facts: str
    advice: str = ""


def fine(subject: str, facts: str) -> Finding:
    """As it should be."""
    return Finding(subject, Verdict.FINE, facts)


def warning(subject: str, facts: str, advice: str) -> Finding:
    """Somebody should know."""
    return Finding(subject, Verdict.WARNING, facts, advice)


def fault(subject: str, facts: str, advice: str) -> Finding:
    """Somebody must do something."""
    return Finding(subject, Verdict.FAULT, facts, advice)
