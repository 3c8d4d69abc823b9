"""``tidegate demo`` from start to end, on a real Redis and a real Triton."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.stack_process import tidegate
from tidegate.cli.photos import example_photos


def test_demo_prints_what_every_photo_shows_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """The table has all photos with classes, timings and batch sizes; then no process and no temporary file is left."""
    with tidegate("demo", folder=tmp_path) as demo:
        code = demo.wait()
        assert code == 0, demo.printed
        rows = [line for line in demo.printed.splitlines() if line.startswith("│")]
        first_rows = {cells[0]: cells for cells in ([cell.strip() for cell in row.split("│")[1:-1]] for row in rows)}
        assert {photo.name for photo in example_photos()} <= first_rows.keys()
        assert first_rows["coffee.jpg"][1].endswith("espresso")
        for photo in example_photos():
            *timings, batch = first_rows[photo.name][2:]
            assert all(float(milliseconds) >= 0 for milliseconds in timings)
            assert 1 <= int(batch) <= len(example_photos())
        assert demo.family() == []
        assert list(demo.temporary.iterdir()) == []


@pytest.mark.parametrize("moment", ["Starting", "redis-server", "worker.app", "Sending"])
def test_demo_ends_on_ctrl_c_at_any_moment_and_leaves_nothing_behind(tmp_path: Path, moment: str) -> None:
    """Whether it has just begun, starts its parts or serves: Ctrl-C ends it as an interrupted program, all of it."""
    with tidegate("demo", folder=tmp_path) as demo:
        demo.wait_until(lambda: moment in demo.printed or moment in demo.programs())
        demo.press_ctrl_c()
        assert demo.wait() == 128 + signal.SIGINT, demo.printed
        assert demo.family() == []
        assert list(demo.temporary.iterdir()) == []


def test_demo_names_the_part_that_fails_to_start_and_what_to_do(tmp_path: Path) -> None:
    """A Redis that will not run fails the demo: with its name, its last words, and advice."""
    programs = tmp_path / "bin"
    programs.mkdir()
    server = programs / "redis-server"
    server.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = --version ]; then echo "Redis server v=7.2.4 sha=0:0"; exit; fi\n'
        "echo the disk is full\n"
        "exit 1\n"
    )
    server.chmod(0o755)
    with tidegate("demo", folder=tmp_path, environ={"PATH": f"{programs}:/usr/bin:/bin"}) as demo:
        assert demo.wait() == 1
        assert "tidegate: redis ended with exit code 1" in demo.printed
        assert "the disk is full" in demo.printed
        assert "--without redis" in demo.printed
        assert "Traceback" not in demo.printed
        assert demo.family() == []


def test_demo_with_a_wrong_setting_says_so_before_anything_starts(tmp_path: Path) -> None:
    """A misspelt variable is told in a sentence."""
    with tidegate("demo", folder=tmp_path, environ={"TIDEGATE_LEASE_SECOND": "20"}) as demo:
        assert demo.wait() == 1
        assert "did you mean TIDEGATE_LEASE_SECONDS?" in demo.printed
        assert "Traceback" not in demo.printed
