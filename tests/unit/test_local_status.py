"""The status file."""

from __future__ import annotations

import json
from pathlib import Path

from tidegate.local.parts import Part, Tier
from tidegate.local.status import describe, status_while_up


def test_status_tells_address_port_and_pid_of_every_part() -> None:
    """Whoever reads it can reach each part, watch its process, and join the stack."""
    parts = [
        Part(
            name="triton",
            command=("true",),
            tier=Tier.GROUND,
            grace_seconds=1,
            ready=(),
            advice="",
            address="127.0.0.1:9001",
            port=9001,
            also={"http": "http://127.0.0.1:9000"},
        ),
        Part(name="worker-1", command=("true",), tier=Tier.WORKERS, grace_seconds=1, ready=(), advice=""),
    ]
    pids = {"triton": 11, "worker-1": 12}
    assert describe(parts, pid=lambda part: pids[part.name], environ={"TIDEGATE_TRITON_URL": "127.0.0.1:9001"}) == {
        "parts": {
            "triton": {"url": "127.0.0.1:9001", "port": 9001, "pid": 11, "also": {"http": "http://127.0.0.1:9000"}},
            "worker-1": {"url": None, "port": None, "pid": 12, "also": {}},
        },
        "environment": {"TIDEGATE_TRITON_URL": "127.0.0.1:9001"},
    }


def test_status_file_is_there_only_while_the_stack_is_up(tmp_path: Path) -> None:
    """A file of an earlier run is gone before this one is up, and this one's when it has ended."""
    file = tmp_path / "status.json"
    file.write_text("stale")
    with status_while_up(file) as write:
        assert not file.exists()
        write({"parts": {}})
        assert json.loads(file.read_text()) == {"parts": {}}
        assert list(tmp_path.iterdir()) == [file]
    assert not file.exists()


def test_status_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    """The address of somebody's Redis may hold a password."""
    with status_while_up(tmp_path / "status.json") as write:
        write({})
        assert (tmp_path / "status.json").stat().st_mode & 0o077 == 0


def test_status_file_that_is_not_wanted_is_not_written(tmp_path: Path) -> None:
    """Without a file there is nothing to write, and nothing fails."""
    with status_while_up(None) as write:
        write({"parts": {}})
    assert list(tmp_path.iterdir()) == []
