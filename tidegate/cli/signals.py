"""Leaving a loop on a signal, between two steps and not in the middle of one."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")


class _Interrupted(BaseException):
    """Raised by the signal's handler, while the loop waits for what comes next."""


class Interruption:
    """Watches for signals while the block runs.

    Attributes:
        number: of the signal that came; None while none has.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._is_waiting = False
        self._before: dict[int, Any] = {}

    def steps(self, items: Iterator[T]) -> Iterator[T]:
        """The items, until there are no more or a signal comes, which cuts a wait for the next one short."""
        while self.number is None:
            try:
                self._is_waiting = True
                item = next(items)
            except (StopIteration, _Interrupted):
                return
            finally:
                self._is_waiting = False
            yield item

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.number = number
        if self._is_waiting:
            self._is_waiting = False
            raise _Interrupted
