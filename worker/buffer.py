"""The tickets a worker holds, and which of them make the next batch. Pure: no clock, no Celery, no Redis.

The policy is work-conserving: when a child is free, its next batch is whatever waits for a model, up to the
model's limit. Models take turns. A linger makes a batch that is not full wait for company, but only so long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class HasJobId(Protocol):
    """Whatever stands for a ticket here."""

    @property
    def job_id(self) -> str:
        """The job that the ticket is about."""
        ...


E = TypeVar("E", bound=HasJobId)


@dataclass(frozen=True)
class Batch(Generic[E]):
    """What one child is to run next.

    Attributes:
        alone: a suspect of having killed its process before; ``entries`` is just this one.
    """

    model: str
    entries: tuple[E, ...]
    alone: bool = False


@dataclass
class _Line(Generic[E]):
    """One model's tickets, in the order in which they came."""

    waiting: deque[E] = field(default_factory=deque)
    alone: deque[E] = field(default_factory=deque)
    since_seconds: float = 0.0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.alone)


class TicketBuffer(Generic[E]):
    """Tickets by model, and the rule for the next batch."""

    def __init__(self, *, linger_seconds: float = 0.0) -> None:
        self._linger_seconds = linger_seconds
        self._lines: dict[str, _Line[E]] = {}
        self._ids: set[str] = set()
        self._limits: Mapping[str, int] = {}
        self._paused: set[str] = set()
        self._turns: dict[str, int] = {}
        self._turn = 0

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, job_id: str) -> bool:
        return job_id in self._ids

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Most images a batch, by model; one where nothing is known. Tells also that these models can run."""
        self._limits = dict(limits)
        self._paused -= set(limits)

    def pause(self, model: str) -> list[E]:
        """Make no more batches for a model until :meth:`set_limits` names it again; gives up its tickets."""
        self._paused.add(model)
        line = self._lines.pop(model, None)
        entries = [*line.alone, *line.waiting] if line else []
        self._ids.difference_update(entry.job_id for entry in entries)
        return entries

    def models(self) -> list[str]:
        """The models whose tickets are held."""
        return list(self._lines)

    def limit_of(self, model: str) -> int:
        """Most images in a batch of this model."""
        return self._limits.get(model, 1)

    def add(self, model: str, entry: E, *, now_seconds: float) -> bool:
        """Take a ticket in; False when one for the same job waits already."""
        if entry.job_id in self._ids:
            return False
        self._ids.add(entry.job_id)
        line = self._lines.setdefault(model, _Line())
        if not line.waiting:
            line.since_seconds = now_seconds
        line.waiting.append(entry)
        return True

    def put_back(self, model: str, entries: Iterable[E], *, alone: bool = False) -> None:
        """Tickets whose batch did not run, to the head of their line; or each to run alone."""
        line = self._lines.setdefault(model, _Line())
        fresh = [entry for entry in entries if entry.job_id not in self._ids]
        self._ids.update(entry.job_id for entry in fresh)
        if alone:
            line.alone.extend(fresh)
        else:
            line.waiting.extendleft(reversed(fresh))

    def next_batch(self, *, now_seconds: float) -> Batch[E] | None:
        """Take the next batch out, or None when nothing may run yet."""
        # The model that was served longest ago goes first: one that is new to a busy worker does not wait in vain.
        for model in sorted(self._lines, key=lambda model: self._turns.get(model, 0)):
            line = self._lines[model]
            if not line:
                del self._lines[model]
                continue
            if model in self._paused or not self._may_leave(model, line, now_seconds):
                continue
            self._turn += 1
            self._turns[model] = self._turn
            return self._take(model, line, now_seconds)
        return None

    def has_full_batch(self) -> bool:
        """Whether a batch waits that could not be larger."""
        return any(
            len(line.waiting) >= self.limit_of(model)
            for model, line in self._lines.items()
            if model not in self._paused
        )

    def next_due_seconds(self) -> float | None:
        """When a lingering batch must leave though it is not full; None when none lingers."""
        if not self._linger_seconds:
            return None
        due = [
            line.since_seconds + self._linger_seconds
            for model, line in self._lines.items()
            if line.waiting and model not in self._paused
        ]
        return min(due, default=None)

    def _may_leave(self, model: str, line: _Line[E], now_seconds: float) -> bool:
        if line.alone or len(line.waiting) >= self.limit_of(model):
            return True
        return now_seconds >= line.since_seconds + self._linger_seconds

    def _take(self, model: str, line: _Line[E], now_seconds: float) -> Batch[E]:
        if line.alone:
            batch = Batch(model, (line.alone.popleft(),), alone=True)
        else:
            count = min(len(line.waiting), self.limit_of(model))
            batch = Batch(model, tuple(line.waiting.popleft() for _ in range(count)))
            line.since_seconds = now_seconds
        self._ids.difference_update(entry.job_id for entry in batch.entries)
        return batch
