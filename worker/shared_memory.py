"""Room for batches in memory that Triton on the same host can read, so that images are not copied into a message.

One region a pool child, made after the fork and grown when a larger batch comes. A region that a killed child left
behind is removed by the next child on that host: its name tells whose it was.
"""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Where POSIX shared memory objects are files on Linux.
FOLDER = Path("/dev/shm")  # noqa: S108  # the objects' own place, not a temporary folder


class SharedRegion:
    """A named piece of shared memory.

    Attributes:
        name: of the object, ``tidegate-<host>-<pid>-<serial>``; its key for Triton is the same after a slash.
    """

    def __init__(self, size_bytes: int, *, serial: int) -> None:
        """Make it, with its memory set aside.

        Raises:
            OSError: there is no such memory, or not enough of it.
        """
        self.name = f"{_prefix()}{os.getpid()}-{serial}"
        self.size_bytes = size_bytes
        path = FOLDER / self.name
        path.unlink(missing_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o660)
        try:
            # Without this, a full /dev/shm would be told by a SIGBUS in the middle of a batch.
            os.posix_fallocate(file, 0, size_bytes)
            self._memory = mmap.mmap(file, size_bytes)
        except OSError:
            path.unlink()
            raise
        finally:
            os.close(file)
        self._bytes: NDArray[np.uint8] = np.frombuffer(self._memory, np.uint8)

    @property
    def key(self) -> str:
        """What Triton opens it by."""
        return f"/{self.name}"

    def array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A view of the region's beginning; its values are whatever they were."""
        return self._bytes[: prod(shape) * dtype.itemsize].view(dtype).reshape(shape)

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Where in the region an array begins, in bytes; None when it lies elsewhere or is not in one piece."""
        offset: int = array.ctypes.data - self._bytes.ctypes.data
        inside = offset >= 0 and offset + array.nbytes <= self.size_bytes
        return offset if inside and array.flags.c_contiguous else None

    def remove(self) -> None:
        """Take the name away; the memory itself goes with its last user."""
        (FOLDER / self.name).unlink(missing_ok=True)


def _prefix() -> str:
    return f"tidegate-{socket.gethostname()}-"


def remove_orphans() -> list[str]:
    """Remove the regions of processes of this host that are no more, and give their names."""
    orphans = [name for name, pid in _regions() if not _alive(pid)]
    for name in orphans:
        (FOLDER / name).unlink(missing_ok=True)
    return orphans


def _regions() -> Iterator[tuple[str, int]]:
    for path in FOLDER.glob(f"{_prefix()}*"):
        with suppress(ValueError):
            yield path.name, int(path.name.removeprefix(_prefix()).partition("-")[0])


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
