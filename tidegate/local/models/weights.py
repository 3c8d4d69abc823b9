"""Reads PyTorch's old weights files without PyTorch, and without trusting them.

PyTorch before 1.6 wrote bare pickles, which may run any code when they are loaded. The reader here resolves only
the five names that a plain state dict needs, none of which does anything, and refuses all others.

Source: ``_legacy_save`` in torch/serialization.py. The file is, one after the other: a magic number, the protocol
version and a description of the machine, a pickle each; the state dict, a pickle whose tensors name their storage
by a key; the list of the keys, a pickle; then for each key an int64 count and so many raw little-endian elements.
"""

from __future__ import annotations

import collections
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

_MAGIC = 0x1950A86A20F9469CFC6C
_PROTOCOL = 1001
_COUNT = np.dtype("<i8")


@dataclass(frozen=True, slots=True)
class _Storage:
    """A run of elements of one type, somewhere behind the pickles."""

    key: str
    dtype: np.dtype[Any]
    count: int


@dataclass(frozen=True, slots=True)
class _View:
    """A tensor: how to look at a storage. ``offset`` and ``strides`` count elements."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, elements: bytes) -> Array:
        """The array itself; numpy refuses a view that leaves the buffer."""
        size = self.storage.dtype.itemsize
        return np.ndarray(
            self.shape,
            dtype=self.storage.dtype,
            buffer=elements,
            offset=self.offset * size,
            strides=tuple(stride * size for stride in self.strides),
        )


def _view(storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: object) -> _View:
    """Stands in for PyTorch's function of this signature; what follows the strides concerns training."""
    return _View(storage, offset, shape, strides)


_ALLOWED: dict[tuple[str, str], object] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _view,
    ("torch", "FloatStorage"): np.dtype("<f4"),
    ("torch", "HalfStorage"): np.dtype("<f2"),
    ("torch", "LongStorage"): np.dtype("<i8"),
}


class _StateDictUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"a weights file has no business with {module}.{name}") from None

    def persistent_load(self, pid: Any) -> _Storage:
        _, dtype, key, _device, count, _whole = pid
        return _Storage(key, dtype, count)


def read_tensors(path: Path) -> dict[str, Array]:
    """All tensors of a state dict by name, as read-only views with the strides they were saved with.

    Raises:
        ValueError: it is no weights file of the old format, or a broken one.
        pickle.UnpicklingError: it asks for something that a weights file does not need.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        if (_load(file), _load(file)) != (_MAGIC, _PROTOCOL) or not _load(file).get("little_endian"):
            raise ValueError(f"{path.name} is no PyTorch weights file of the old format")
        views: dict[str, _View] = _load(file)
        storages = {view.storage.key: view.storage for view in views.values()}
        elements = {key: _elements(file, storages[key]) for key in _load(file)}
    return {name: view.of(elements[view.storage.key]) for name, view in views.items()}


def _load(file: BinaryIO) -> Any:
    """The next pickle. An unpickler reads no further than its end."""
    return _StateDictUnpickler(file).load()


def _elements(file: BinaryIO, storage: _Storage) -> bytes:
    count = int(np.frombuffer(file.read(_COUNT.itemsize), _COUNT)[0])
    if count != storage.count:
        raise ValueError(f"storage {storage.key} has {count} elements where {storage.count} were announced")
    size = count * storage.dtype.itemsize
    elements = file.read(size)
    if len(elements) != size:
        raise ValueError(f"the file ends in the middle of storage {storage.key}")
    return elements
