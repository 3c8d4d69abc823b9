"""What processes write to their logs, whichever way a line takes: the same fields, a line of JSON each."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import structlog
from tidegate.settings import load_settings
from tidegate.telemetry import configure_logging

configure_logging(load_settings({}, log_format="json", log_level="INFO"), may_fork=sys.argv[1] == "True")
log = structlog.get_logger("api.some")
log.debug("job.hidden")
log.info("job.accepted", job_id="1")
log.warning("file.odd", path="\\udcff")
try:
    1 / 0
except ZeroDivisionError:
    log.exception("request.crashed")
"""


def lines(*, may_fork: bool) -> list[dict[str, Any]]:
    """What a process logs, without the times."""
    command = [sys.executable, "-c", PROGRAM, str(may_fork)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert all(line.pop("timestamp").endswith("Z") for line in found)
    return found


@pytest.mark.parametrize("may_fork", [True, False])
def test_log_lines_have_event_level_logger_and_facts(*, may_fork: bool) -> None:
    """Those below the level are left out, and none is lost for what is in it."""
    accepted, odd, crashed = lines(may_fork=may_fork)
    assert accepted == {"event": "job.accepted", "level": "info", "logger": "api.some", "job_id": "1"}
    assert (odd["level"], odd["path"]) == ("warning", "\udcff")
    assert (crashed["event"], crashed["level"]) == ("request.crashed", "error")
    assert "ZeroDivisionError" in crashed["exception"]
