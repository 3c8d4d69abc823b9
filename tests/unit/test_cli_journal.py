"""The journal by which ``tidegate submit --resume`` goes on."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from tidegate.cli.journal import Journal, open_journal
from tidegate.client import JobState

NOW = datetime.now(UTC)
OPEN = JobState(id="j1", status="queued", model="m", created_at=NOW)
ENDED = JobState(id="j1", status="succeeded", model="m", created_at=NOW, finished_at=NOW)


@pytest.fixture
def photo(tmp_path: Path) -> str:
    """A file."""
    file = tmp_path / "photo.jpg"
    file.write_bytes(b"one")
    return str(file)


def test_journal_remembers_what_is_done(tmp_path: Path, photo: str) -> None:
    """The next run with the same file leaves it out."""
    with open_journal(tmp_path / "j", {}) as journal:
        assert not journal.is_done(photo, ended=False)
        journal.note(photo, ENDED)
    with open_journal(tmp_path / "j", {}) as journal:
        assert journal.is_done(photo, ended=True)
        assert not journal.is_done(str(tmp_path / "another.jpg"), ended=False)


def test_journal_tells_handed_in_from_ended(tmp_path: Path, photo: str) -> None:
    """A run that waits goes back to what an earlier one only handed in."""
    with open_journal(tmp_path / "j", {}) as journal:
        journal.note(photo, OPEN)
    with open_journal(tmp_path / "j", {}) as journal:
        assert journal.is_done(photo, ended=False)
        assert not journal.is_done(photo, ended=True)
        journal.note(photo, ENDED)
    with open_journal(tmp_path / "j", {}) as journal:
        assert journal.is_done(photo, ended=True)


def test_journal_takes_a_refusal_for_an_end(tmp_path: Path, photo: str) -> None:
    """What the API refused for good is not sent again."""
    with open_journal(tmp_path / "j", {}) as journal:
        journal.note(photo, None)
        assert journal.is_done(photo, ended=True)


def test_image_whose_job_is_lost_gets_another_key(tmp_path: Path, photo: str) -> None:
    """In this run and in later ones, each time it happens; and it is not done."""
    keys = []
    for _ in range(3):
        with open_journal(tmp_path / "j", {}) as journal:
            keys.append(journal.key(photo))
            journal.note(photo, OPEN)
            journal.note_lost(photo)
            assert not journal.is_done(photo, ended=False)
            keys.append(journal.key(photo))
    assert keys[1::2][:-1] == keys[2::2]
    assert len(set(keys)) == 4


def test_key_is_the_same_in_every_run_of_a_journal(tmp_path: Path, photo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The API knows an image again that was handed in but not written down, from whatever folder the run is started."""
    with open_journal(tmp_path / "j", {"top_k": 3}) as journal:
        key = journal.key(photo)
    monkeypatch.chdir(tmp_path)
    with open_journal(tmp_path / "j", {"top_k": 3}) as journal:
        assert journal.key("photo.jpg") == key


def test_key_is_another_for_another_request(tmp_path: Path, photo: str) -> None:
    """A changed file, other options and another journal each make another job; so does a run without a journal."""
    keys = []
    for name, options in (("j", {}), ("j", {"top_k": 3}), ("other", {})):
        with open_journal(tmp_path / name, options) as journal:
            keys.append(journal.key(photo))
    with open_journal(tmp_path / "j", {}) as journal:
        journal.note(photo, ENDED)
        Path(photo).write_bytes(b"three")
        keys += [journal.key(photo), Journal(None, {}).key(photo), Journal(None, {}).key(photo)]
        assert not journal.is_done(photo, ended=False)
    assert len(set(keys)) == len(keys)


def test_journal_survives_a_kill_in_the_middle_of_a_line(tmp_path: Path, photo: str) -> None:
    """What is whole counts, and what follows starts on a line of its own."""
    path = tmp_path / "j"
    with open_journal(path, {}) as journal:
        journal.note(photo, ENDED)
    with path.open("a") as file:
        file.write('{"key": "5a8ffccc-4ccc-55')
    with open_journal(path, {}) as journal:
        assert journal.is_done(photo, ended=True)
        journal.note(f"{photo}.2", ENDED)
    assert [json.loads(line).get("image") for line in path.read_text().splitlines()] == [None, photo, f"{photo}.2"]
    with open_journal(path, {}) as journal:
        assert len(journal) == 2


def test_journal_takes_names_that_are_no_text(tmp_path: Path) -> None:
    """A file's name is bytes; any of them can be written down and found again."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\n.jpg")
    Path(name).write_bytes(b"one")
    with open_journal(tmp_path / "j", {}) as journal:
        journal.note(name, ENDED)
    with open_journal(tmp_path / "j", {}) as journal:
        assert journal.is_done(name, ended=True)


@pytest.mark.parametrize(
    "content",
    [b"a shopping list\n", b"[]\n", b'{"tidegate_journal": 2, "run": ""}\n', b'{"run": 1}\n', b"\xff\xd8\xff"],
)
def test_other_file_is_no_journal_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    """A slip of the hand, be it a photo, overwrites nothing."""
    path = tmp_path / "list.txt"
    path.write_bytes(content)
    with pytest.raises(typer.BadParameter, match=r"list\.txt is"), open_journal(path, {}):
        pass
    assert path.read_bytes() == content


def test_journal_belongs_to_one_run_at_a_time(tmp_path: Path) -> None:
    """Two runs would hand in everything twice."""
    with open_journal(tmp_path / "j", {}), pytest.raises(typer.BadParameter, match="in use"):  # noqa: SIM117
        with open_journal(tmp_path / "j", {}):
            pass
