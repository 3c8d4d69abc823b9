"""Which images ``tidegate submit`` takes for its paths."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from tidegate.cli.images import find_images


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with images on two levels and other files; the current one."""
    for name in ("b.jpg", "a.PNG", "notes.txt", "deep/c.webp", "deep/deeper/d.tiff", "deep/e.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_folder_stands_for_the_images_below_it(folder: Path) -> None:
    """All levels, in an order that is the same every time, and nothing that is no image by its name."""
    assert list(find_images(["."])) == ["a.PNG", "b.jpg", "deep/c.webp", "deep/deeper/d.tiff"]


def test_file_is_taken_whatever_it_is_called(folder: Path) -> None:
    """Who names a file means it."""
    assert list(find_images(["notes.txt", str(folder / "b.jpg")])) == ["notes.txt", str(folder / "b.jpg")]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.jpg", ["b.jpg"]),
        ("deep/*", ["deep/c.webp", "deep/e.json"]),
        ("**/*.[tw]*", ["deep/c.webp", "deep/deeper/d.tiff", "notes.txt"]),
    ],
)
def test_pattern_stands_for_the_files_that_it_matches(folder: Path, pattern: str, expected: list[str]) -> None:
    """As a shell would have it, where it was quoted or too long for the shell."""
    assert sorted(find_images([pattern])) == expected


def test_file_whose_name_looks_like_a_pattern_is_a_file(folder: Path) -> None:
    """Brackets in a name are no pattern when there is such a file."""
    (folder / "photo[1].jpg").touch()
    assert list(find_images(["photo[1].jpg"])) == ["photo[1].jpg"]


def test_url_stands_for_itself(folder: Path) -> None:
    """Tidegate fetches it; nothing is looked for here."""
    assert list(find_images(["https://example.com/*.jpg"])) == ["https://example.com/*.jpg"]


@pytest.mark.parametrize("path", ["nowhere.jpg", "*.gif", "deep/nowhere/"])
def test_path_with_nothing_there_is_refused(folder: Path, path: str) -> None:
    """A typing mistake is told before anything is sent."""
    with pytest.raises(typer.BadParameter, match="there is no file at"):
        list(find_images(["b.jpg", path]))
