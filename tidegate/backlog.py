"""How much waits, for how long, and how fast it drains: a model at a time, for people and dashboards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.commands import Command


@dataclass(frozen=True)
class Backlog:
    """The jobs of one model.

    Attributes:
        waiting: jobs that have not begun, also those that were put off or whose image is still to be fetched.
        running: jobs that a worker has taken up.
        oldest_seconds: how long the job in front has waited; None where none does.
        rate: jobs that ended a second, over the last tens of seconds.
        pace: jobs a second that its workers answer while others wait; None while that is not known.
    """

    model: str
    waiting: int
    running: int
    oldest_seconds: float | None
    rate: float
    pace: float | None

    @property
    def drained_in_seconds(self) -> float | None:
        """When all that waits and runs will have ended, by the pace or else the rate; None where that is not known."""
        left, speed = self.waiting + self.running, self.pace or self.rate
        if not left:
            return 0.0
        return left / speed if speed else None


def backlog(models: Sequence[str]) -> Command[list[Backlog]]:
    """Ask for the backlogs of these models, in their order."""

    def parse(replies: list[list[Any]]) -> list[Backlog]:
        return [_parse(model, reply) for model, reply in zip(models, replies, strict=True)]

    return Command("backlog", models, parse)


def _parse(model: str, reply: list[Any]) -> Backlog:
    waiting, running, oldest_ms, rate, pace = reply
    return Backlog(
        model,
        waiting=int(waiting),
        running=int(running),
        oldest_seconds=int(oldest_ms) / 1000 if oldest_ms else None,
        rate=float(rate),
        pace=float(pace) if pace else None,
    )
