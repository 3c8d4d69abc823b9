"""What a run of ``tidegate submit`` has done, in a file that lets the next run go on where it ended.

The first line names the run; each further one is an image that became a job, or that the API refused for good. A run
gives each image a key that follows from the run's name, the file and the options. So an image that was handed in
but not written down, because the run was killed in between, is handed in again under the same key, and the API
answers with the job that it has already. It knows a key for longer than it keeps a job that has ended; where the job
is gone, the image is handed in once more, under a key that follows from the first.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import typer

from tidegate.client import JobState

#: Of the file's form.
VERSION = 1
LOST = "lost"


class Journal:
    """The journal of one run; without a file it remembers nothing beyond the process.

    Args:
        file: open for reading and appending; None for none.
        options: what is asked for beside the images.

    Raises:
        typer.BadParameter: the file is no journal.
    """

    def __init__(self, file: IO[str] | None, options: Mapping[str, Any]) -> None:
        self._file = file
        self._options = json.dumps(dict(options), sort_keys=True)
        self._run = uuid.uuid4()
        #: Whether the job had ended, by key.
        self._ended: dict[bytes, bool] = {}
        #: How many jobs of an image were no longer kept when they were asked for, by key.
        self._lost = Counter[bytes]()
        if file is not None:
            self._open(file)

    def __len__(self) -> int:
        """How many images are written down."""
        return len(self._ended)

    @property
    def is_kept(self) -> bool:
        """Whether a later run can read it."""
        return self._file is not None

    def key(self, image: str) -> str:
        """The key of an image's submission; another one when the file has changed, or its job is no longer kept."""
        key = self._uuid(image)
        lost = self._lost[key.bytes]
        return str(uuid.uuid5(key, str(lost)) if lost else key)

    def is_done(self, image: str, *, ended: bool) -> bool:
        """Whether an image is written down; where ``ended``, only if its job has ended, or it became none."""
        found = self._ended.get(self._uuid(image).bytes)
        return found is not None and (found or not ended)

    def note(self, image: str, job: JobState | None) -> None:
        """Write an image down; without a job it was refused for good."""
        key, has_ended = self._uuid(image), job is None or job.ended
        self._ended[key.bytes] = has_ended
        if self._file is not None:
            line = {"key": str(key), "image": image, "job": job and job.id, "status": job.status if job else "refused"}
            self._write({**line, "ended": has_ended})

    def note_lost(self, image: str) -> None:
        """Write down that an image's job is no longer kept, so that it is handed in as a new one from now on."""
        key = self._uuid(image)
        self._lost[key.bytes] += 1
        self._ended.pop(key.bytes, None)
        if self._file is not None:
            self._write({"key": str(key), "image": image, "job": None, "status": LOST, "ended": False})

    def _uuid(self, image: str) -> uuid.UUID:
        # As JSON, since a file's name may be no text that can be encoded.
        return uuid.uuid5(self._run, json.dumps([*_identity(image), self._options]))

    def _open(self, file: IO[str]) -> None:
        file.seek(0)
        text = file.readline()
        if not text:
            self._write({"tidegate_journal": VERSION, "run": str(self._run)})
            return
        try:
            head = json.loads(text)
            if head["tidegate_journal"] != VERSION:
                raise typer.BadParameter(f"{file.name} is a journal of another version", param_hint="--resume")
            self._run = uuid.UUID(head["run"])
        except (ValueError, KeyError, TypeError) as error:
            raise typer.BadParameter(f"{file.name} is something else than a journal", param_hint="--resume") from error
        for line in _whole_lines(file):
            key = uuid.UUID(line["key"]).bytes
            if line["status"] == LOST:
                self._lost[key] += 1
                self._ended.pop(key, None)
            else:
                self._ended[key] = line["ended"]

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def _identity(image: str) -> tuple[str | int, ...]:
    """What makes a file that file, in that version; a URL stands for itself."""
    try:
        status = Path(image).stat()
    except OSError:
        return (image,)
    return (str(Path(image).absolute()), status.st_size, status.st_mtime_ns)


def _whole_lines(file: IO[str]) -> Iterator[dict[str, Any]]:
    """The lines of a journal but for a last one that was cut off by a kill, which is removed."""
    while True:
        start = file.tell()
        text = file.readline()
        if not text.endswith("\n"):
            file.truncate(start)
            file.seek(0, os.SEEK_END)
            return
        yield json.loads(text)


@contextmanager
def open_journal(path: Path | None, options: Mapping[str, Any]) -> Iterator[Journal]:
    """The journal in a file, which is made where there is none, kept from other runs while the block runs.

    Raises:
        typer.BadParameter: the file is no journal, cannot be written, or belongs to a run that goes on.
    """
    if path is None:
        yield Journal(None, options)
        return
    try:
        # Another file that is taken for one by mistake may have any bytes.
        file = path.open("a+", encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error.strerror}", param_hint="--resume") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise typer.BadParameter(f"{path} is in use by a run that goes on", param_hint="--resume") from error
        yield Journal(file, options)
