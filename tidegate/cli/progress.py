"""The progress bar of many images: how far, how fast, how many wait and failed, and for how long."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class ImageProgress:
    """Shows the progress on stderr where that is a terminal, and nothing at all where it is none.

    Attributes:
        done: images that are through, well or not, with those of earlier runs.
        failed: those among them that failed in this run.
        waiting: images that are under way.
    """

    def __init__(self, total: int, *, quiet: bool = False) -> None:
        console = Console(stderr=True, highlight=False)
        self.total = total
        self.done = self.failed = self.waiting = 0
        self._progress = Progress(
            TextColumn("{task.completed}/{task.total}"),
            BarColumn(),
            _RateColumn(),
            TextColumn("waiting {task.fields[waiting]}"),
            TextColumn("failed {task.fields[failed]}"),
            TextColumn("left"),
            TimeRemainingColumn(compact=True),
            console=console,
            disable=quiet or not console.is_terminal,
            transient=True,
            # Lines on the same terminal go above the bar; those into a pipe go there untouched.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=True,
        )
        self._task = self._progress.add_task("", total=total, waiting=0, failed=0)

    def begin(self) -> None:
        """An image is under way."""
        self.waiting += 1
        self._show()

    def end(self, *, failed: bool) -> None:
        """One that was is through."""
        self.waiting -= 1
        self.done += 1
        self.failed += failed
        self._show()

    def skip(self) -> None:
        """One was through in an earlier run."""
        self.done += 1
        self._show()

    def _show(self) -> None:
        self._progress.update(self._task, completed=self.done, waiting=self.waiting, failed=self.failed)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._progress.stop()
        if not self._progress.disable:
            failed = f", {self.failed} of them failed" if self.failed else ""
            self._progress.console.print(f"{self.done} of {self.total} images done{failed}.")


class _RateColumn(ProgressColumn):
    """Images a second, as of late."""

    def render(self, task: Task) -> Text:
        """See :class:`ProgressColumn`."""
        return Text(f"{task.speed:.1f}/s" if task.speed is not None else "-/s")
