"""What the commands of ``tidegate`` print, and how they end."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tidegate.cli.commands import app
from tidegate.cli.failures import told
from tidegate.cli.photos import example_photos, photos_in
from tidegate.cli.up import announcement
from tidegate.errors import SettingsError
from tidegate.keys import ApiKeys
from tidegate.local import MissingPart
from tidegate.local.parts import PartFailed


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["up"],
        ["demo"],
        ["triton"],
        ["models"],
        ["models", "build"],
        ["jobs"],
        ["submit"],
        ["queue"],
        ["doctor"],
        ["keys", "new"],
        ["webhooks"],
    ],
)
def test_cli_explains_every_command(arguments: list[str]) -> None:
    """``--help`` works everywhere, without starting anything."""
    result = CliRunner().invoke(app, [*arguments, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.output


def test_cli_tells_its_version() -> None:
    """What to write into a report of a bug, also where nothing was installed."""
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert re.fullmatch(r"tidegate( \d+\.\d+\.\d+.*|, from a checkout that is not installed)\n", result.output)


def test_cli_builds_the_bundled_model_where_it_is_told_to(tmp_path: Path) -> None:
    """``tidegate models build`` prints the file that it has made."""
    result = CliRunner().invoke(app, ["models", "build", "--repository", str(tmp_path)])
    assert result.exit_code == 0
    assert Path(result.output.strip()) == tmp_path / "efficientnet_lite0" / "1" / "model.onnx"
    assert Path(result.output.strip()).is_file()


def test_cli_makes_a_key_that_the_api_knows() -> None:
    """The key is told once with the line to store, and that line lets in the key and nobody else."""
    made = json.loads(CliRunner().invoke(app, ["keys", "new", "alice", "--json"]).stdout)
    known = ApiKeys(made["line"])
    assert known.name_of(made["key"]) == "alice"
    assert known.name_of(made["key"] + "x") is None
    assert made["key"] not in made["line"]
    refused = CliRunner().invoke(app, ["keys", "new", "-no name-"])
    assert refused.exit_code != 0


def test_failure_of_a_part_is_told_with_its_name_its_last_lines_and_advice(capsys: pytest.CaptureFixture[str]) -> None:
    """A person reads who failed, what it said, and what to do, and a script sees that it failed."""
    error = PartFailed("redis", "redis ended with exit code 1", advice="Name another --data-dir.")
    error.last_lines = ("Bad file format",)
    with pytest.raises(typer.Exit) as caught, told():
        raise error
    message = capsys.readouterr().err
    assert caught.value.exit_code == 1
    assert message.splitlines() == [
        "tidegate: redis ended with exit code 1",
        "The last lines of redis:",
        "    Bad file format",
        "Name another --data-dir.",
    ]


def test_failure_of_ours_is_told_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong setting brings no traceback."""
    with pytest.raises(typer.Exit), told():
        raise SettingsError("TIDEGATE_REDSI_URL is not a setting of Tidegate")
    assert capsys.readouterr().err == "tidegate: TIDEGATE_REDSI_URL is not a setting of Tidegate\n"


def test_failure_for_want_of_an_extra_names_the_extra(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the embedded stack was not installed, the message says how to get it."""
    with pytest.raises(typer.Exit), told():
        raise ModuleNotFoundError("No module named 'honcho'", name="honcho")
    assert capsys.readouterr().err == "tidegate: honcho is not installed: pip install 'tidegate[local]'\n"


def test_failure_to_write_a_file_names_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there is told in a sentence."""
    missing = tmp_path / "nowhere" / "status.json"
    with pytest.raises(typer.Exit), told():
        missing.touch()
    assert capsys.readouterr().err == f"tidegate: {missing}: No such file or directory\n"


def test_failure_that_is_a_bug_keeps_its_traceback() -> None:
    """A module of ours that is missing is no missing extra."""
    with pytest.raises(ModuleNotFoundError), told():
        raise ModuleNotFoundError("No module named 'tidegate.lokal'", name="tidegate.lokal")


def test_announcement_lists_every_address_and_a_command_to_paste() -> None:
    """The curl line holds the API's address and a photo that exists, in words that a shell reads as they are meant."""
    lines = announcement({"redis": "redis://127.0.0.1:6001/0", "api": "http://127.0.0.1:8000"}).splitlines()
    assert any("redis://127.0.0.1:6001/0" in line for line in lines)
    (curl,) = [shlex.split(line) for line in lines if "curl" in line]
    assert curl[-1] == "http://127.0.0.1:8000/v1/jobs"
    (form,) = [word for word in curl if word.startswith("image=@")]
    assert Path(form.removeprefix("image=@")).is_file()
    (export,) = [shlex.split(line) for line in lines if "export" in line]
    assert export == [
        "export",
        "TIDEGATE_CLIENT_URL=http://127.0.0.1:8000",
        "TIDEGATE_REDIS_URL=redis://127.0.0.1:6001/0",
    ]


def test_announcement_without_an_api_offers_nothing_to_paste() -> None:
    """A stack that has no API here has nothing that curl could ask."""
    assert "curl" not in announcement({"redis": "redis://127.0.0.1:6001/0"})


def test_photos_are_the_images_of_a_folder_by_name(tmp_path: Path) -> None:
    """A README beside the photos is not sent."""
    for name in ("b.JPG", "a.png", "README.md"):
        (tmp_path / name).touch()
    assert photos_in(tmp_path) == [tmp_path / "a.png", tmp_path / "b.JPG"]


def test_photos_must_be_there(tmp_path: Path) -> None:
    """A folder without any is named, and nothing is started for it."""
    with pytest.raises(MissingPart, match=str(tmp_path)):
        photos_in(tmp_path)


def test_photos_ship_with_tidegate() -> None:
    """The demo has something to show."""
    assert len(example_photos()) >= 3
