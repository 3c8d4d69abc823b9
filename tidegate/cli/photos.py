"""Which files are photos, and those that the demo sends."""

from __future__ import annotations

from pathlib import Path

from tidegate.local import MissingPart, resource

#: Of the formats that Tidegate takes.
SUFFIXES = frozenset({".avif", ".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".mpo", ".png", ".tif", ".tiff", ".webp"})


def photos_in(folder: Path) -> list[Path]:
    """The image files of a folder, by name.

    Raises:
        MissingPart: it has none.
    """
    found = sorted(file for file in folder.iterdir() if file.suffix.lower() in SUFFIXES)
    if not found:
        raise MissingPart(f"there is no photo in {folder}")
    return found


def example_photos() -> list[Path]:
    """Those that ship with Tidegate.

    Raises:
        MissingPart: this installation has none.
    """
    return photos_in(resource("examples") / "images")
