"""The list of a tenant's own jobs, in pages: what ``GET /v1/jobs`` asks of the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from tidegate.commands import Command
from tidegate.jobs import State, is_job_id

#: Longest number that is a time in milliseconds.
_MAX_DIGITS = 15


@dataclass(frozen=True)
class Mark:
    """A job in the list: the newest come first, and those of one millisecond by their ids."""

    created_ms: int
    job_id: str

    def __str__(self) -> str:
        return f"{self.created_ms}.{self.job_id}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Read what ``str`` wrote; None when it is nothing of the kind."""
        number, _, job_id = text.partition(".")
        if not (number.isascii() and number.isdigit() and len(number) <= _MAX_DIGITS and is_job_id(job_id)):
            return None
        return cls(int(number), job_id)


def list_own(
    tenant: str, models: Iterable[str], *, limit: int, state: State | None = None, after: Mark | None = None
) -> Command[list[Mark]]:
    """The tenant's newest jobs.

    Args:
        tenant: whose.
        models: of which models.
        limit: most jobs.
        state: in which state; None for any.
        after: begin behind this one.
    """
    place = [after.created_ms, after.job_id] if after else ["", ""]
    arguments: list[str | bytes | int | float] = [tenant, limit, *place, state or "", *models]

    def parse(replies: Sequence[Sequence[bytes]]) -> list[Mark]:
        return [Mark(int(created_ms), job_id.decode()) for job_id, created_ms in replies]

    return Command("list", arguments, parse)
