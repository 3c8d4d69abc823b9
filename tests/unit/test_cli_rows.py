"""How outcomes are told."""

from __future__ import annotations

import csv
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tidegate.cli.rows import CSV_COLUMNS, open_csv, tell
from tidegate.client import ImageError, JobState, Outcome

NOW = datetime.now(UTC)
RESULT: dict[str, Any] = {
    "predictions": [
        {"class_id": 967, "class_name": "espresso", "probability": 0.9571, "logit": 9.5},
        {"class_id": 3, "class_name": None, "probability": 0.01, "logit": 1.0},
    ]
}
GOOD = Outcome(
    "good, photo.jpg",
    JobState(id="j1", status="succeeded", model="m", created_at=NOW, finished_at=NOW, result=RESULT),
    None,
)
BAD = Outcome("bad.jpg", None, ImageError("It is cut off.", code="image_corrupt", status=422))
SUBMITTED = Outcome("photo.jpg", JobState(id="j2", status="queued", model="m", created_at=NOW), None)


def read(table: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def test_people_read_the_best_class_or_the_job(capsys: pytest.CaptureFixture[str]) -> None:
    """A line each, parts separated by tabs; what failed goes to stderr, out of the way of a pipe."""
    for outcome in (GOOD, BAD, SUBMITTED):
        tell(outcome, as_json=False)
    printed = capsys.readouterr()
    assert printed.out.splitlines() == ["good, photo.jpg\tespresso\t0.957", "photo.jpg\tj2"]
    assert printed.err == "tidegate: bad.jpg: image_corrupt: It is cut off.\n"


def test_programs_read_a_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Every outcome is on stdout, whatever became of it."""
    for outcome in (GOOD, BAD):
        tell(outcome, as_json=True)
    good, bad = map(json.loads, capsys.readouterr().out.splitlines())
    assert good["job"]["result"]["predictions"][0]["class_name"] == "espresso"
    assert good["error"] is None
    assert bad == {
        "image": "bad.jpg",
        "job": None,
        "error": {"code": "image_corrupt", "message": "It is cut off.", "retryable": False},
    }


def test_table_has_a_row_a_class_and_one_for_a_failure(tmp_path: Path) -> None:
    """What a spreadsheet needs stands in every row, and a comma in a name breaks none."""
    with open_csv(tmp_path / "t.csv", append=False) as write:
        write(GOOD)
        write(BAD)
    rows = read(tmp_path / "t.csv")
    assert tuple(rows[0]) == CSV_COLUMNS
    assert [(row["image"], row["rank"], row["class_id"], row["class_name"]) for row in rows] == [
        ("good, photo.jpg", "1", "967", "espresso"),
        ("good, photo.jpg", "2", "3", ""),
        ("bad.jpg", "", "", ""),
    ]
    assert [row["status"] for row in rows] == ["succeeded", "succeeded", "refused"]
    assert rows[2]["error_code"] == "image_corrupt"


@pytest.mark.parametrize(("append", "images"), [(True, ["good, photo.jpg"] * 4), (False, ["good, photo.jpg"] * 2)])
def test_table_is_gone_on_with_where_a_run_is_resumed(tmp_path: Path, append: bool, images: list[str]) -> None:  # noqa: FBT001
    """A resumed run adds rows under one head, and a new run makes a new table."""
    for _ in range(2):
        with open_csv(tmp_path / "t.csv", append=append) as write:
            write(GOOD)
    assert [row["image"] for row in read(tmp_path / "t.csv")] == images
