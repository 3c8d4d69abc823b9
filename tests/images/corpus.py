"""Where the files of the corpus lie, by what must become of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.images.honest import HONEST
from tests.images.hostile import BROKEN, FOREIGN, OVERSIZED

FILES = Path(__file__).parent / "files"

FOLDERS: Mapping[str, Mapping[str, Callable[[], bytes]]] = {
    "honest": HONEST,
    "foreign": FOREIGN,
    "oversized": OVERSIZED,
    "broken": BROKEN,
}


def read(folder: str, name: str) -> bytes:
    """The bytes of one file."""
    return (FILES / folder / name).read_bytes()
