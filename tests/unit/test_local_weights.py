"""The reader of PyTorch's old weights files: right, and not to be misused."""

from __future__ import annotations

import collections
import os
import pickle
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tidegate.local.models.weights import read_tensors

Array = npt.NDArray[Any]
View = tuple[str, int, tuple[int, ...], tuple[int, ...]]
"""Key of the storage, offset, shape, strides."""
WriteWeights = Callable[[dict[str, Array], dict[str, View]], Path]

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


class _Tensor:
    """Pickles as a PyTorch tensor does: a view of a storage, given by its key."""

    def __init__(self, rebuild: Any, key: str, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
        self._reduced: tuple[Any, ...] = rebuild, (_Key(key), offset, shape, strides, False, collections.OrderedDict())

    def __reduce__(self) -> tuple[Any, ...]:
        return self._reduced


class _Key(str):
    """Pickled by reference to a storage instead of by value."""

    __slots__ = ()


@pytest.fixture
def write_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WriteWeights:
    """Writes a weights file as PyTorch did, with a stand-in for PyTorch."""
    torch, utils = types.ModuleType("torch"), types.ModuleType("torch._utils")
    torch.FloatStorage = type("FloatStorage", (), {"__module__": "torch"})  # type: ignore[attr-defined] # made up here

    def _rebuild_tensor_v2() -> None:
        """Known by its name alone."""

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    utils._rebuild_tensor_v2 = _rebuild_tensor_v2  # type: ignore[attr-defined] # likewise
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", utils)

    def write(storages: dict[str, Array], views: dict[str, View]) -> Path:
        class Pickler(pickle.Pickler):
            def persistent_id(self, obj: Any) -> Any:
                if not isinstance(obj, _Key):
                    return None
                return ("storage", torch.FloatStorage, str(obj), "cpu", storages[obj].size, None)

        state = collections.OrderedDict((name, _Tensor(_rebuild_tensor_v2, *view)) for name, view in views.items())
        file = tmp_path / "weights.pth"
        with file.open("wb") as output:
            for header in (MAGIC, PROTOCOL, {"little_endian": True}):
                pickle.dump(header, output, protocol=2)
            Pickler(output, protocol=2).dump(state)
            pickle.dump(list(storages), output, protocol=2)
            for elements in storages.values():
                output.write(np.int64(elements.size).tobytes() + elements.tobytes())
        return file

    return write


def test_tensors_are_read_through_their_strides(write_weights: WriteWeights) -> None:
    """A transposed view of the middle of a storage comes out transposed."""
    storage = np.arange(20, dtype=np.float32)
    file = write_weights({"17": storage}, {"plain": ("17", 0, (20,), (1,)), "turned": ("17", 4, (3, 4), (1, 3))})
    tensors = read_tensors(file)
    np.testing.assert_array_equal(tensors["plain"], storage)
    np.testing.assert_array_equal(tensors["turned"], storage[4:16].reshape(4, 3).T)


def test_tensors_of_several_storages_are_told_apart(write_weights: WriteWeights) -> None:
    """Each tensor gets the elements of its own storage, in whatever order they are stored."""
    storages = {"2": np.full(3, 2, np.float32), "1": np.full(5, 1, np.float32)}
    tensors = read_tensors(write_weights(storages, {"one": ("1", 0, (5,), (1,)), "two": ("2", 0, (3,), (1,))}))
    assert tensors["one"].tolist() == [1.0] * 5
    assert tensors["two"].tolist() == [2.0] * 3


def test_weights_file_cannot_run_code(tmp_path: Path) -> None:
    """A pickle that would call something is refused, and nothing was called."""

    class Attack:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "run"),)

    file = tmp_path / "weights.pth"
    file.write_bytes(pickle.dumps(Attack()))
    with pytest.raises(pickle.UnpicklingError, match=r"no business with posix\.mkdir"):
        read_tensors(file)
    assert not (tmp_path / "run").exists()


def test_view_that_leaves_its_storage_is_refused(write_weights: WriteWeights) -> None:
    """No tensor shows memory that is not its own."""
    file = write_weights({"1": np.zeros(4, np.float32)}, {"long": ("1", 2, (4,), (1,))})
    with pytest.raises(ValueError, match="size of buffer"):
        read_tensors(file)


def test_truncated_file_is_refused(write_weights: WriteWeights) -> None:
    """A download that broke off does not become a network of zeros."""
    file = write_weights({"1": np.zeros(4, np.float32)}, {"all": ("1", 0, (4,), (1,))})
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(ValueError, match="ends in the middle of storage 1"):
        read_tensors(file)


def test_other_file_is_refused(tmp_path: Path) -> None:
    """A pickle that is no weights file is told apart."""
    file = tmp_path / "weights.pth"
    file.write_bytes(pickle.dumps(1) + pickle.dumps(2))
    with pytest.raises(ValueError, match="no PyTorch weights file"):
        read_tensors(file)
