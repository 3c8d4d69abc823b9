"""``tidegate webhooks`` and the example receiver, as a person uses them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.outgoing import SECRET, Outgoing, outgoing
from tests.integration.receiver import Reply, running_receiver
from tests.integration.server_process import ServerProcess, free_ports
from tests.integration.workers import environment, wait_until
from tidegate.client import verify
from tidegate.settings import load_settings
from tidegate.webhooks.deliveries import DeliveryState

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "webhook_receiver.py"


@pytest.fixture
def out(tmp_path: Path, clean_environment: None) -> Iterator[Outgoing]:
    """A place to send from."""
    with outgoing(tmp_path) as place:
        yield place


def tidegate(out: Outgoing, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    """Run the command under the settings of that place."""
    command = [sys.executable, "-m", "tidegate.cli", "webhooks", *arguments]
    environ = {**environment(out.settings), "COLUMNS": "200", **changed}
    return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)


def test_deliveries_are_listed_and_repeated(out: Outgoing) -> None:
    """What waits, what did not get through, and once more by its id."""
    with running_receiver() as receiver:
        receiver.replies.append(Reply(404))
        (wanted,) = out.end(out.submit(receiver))
        waiting: Any = json.loads(tidegate(out, "list", "--json").stdout)
        assert [(each["id"], each["state"], each["attempts"]) for each in waiting] == [(wanted, "pending", 0)]
        with out.worker():
            out.wait_for(wanted, DeliveryState.FAILED)
            assert json.loads(tidegate(out, "list", "--json").stdout) == []
            listed = tidegate(out, "list", "--ended").stdout
            assert wanted in listed
            assert "404 Not Found" in listed
            again = tidegate(out, "redeliver", wanted)
            assert (again.returncode, again.stdout) == (0, f"{wanted} pending\n")
            out.wait_for(wanted, DeliveryState.DELIVERED)


def test_unknown_delivery_is_told(out: Outgoing) -> None:
    """With an exit code that a script sees."""
    again = tidegate(out, "redeliver", "nothing-succeeded")
    assert (again.returncode, again.stdout) == (1, "nothing-succeeded unknown\n")


def test_receiver_can_be_tried(out: Outgoing) -> None:
    """A signed event, the answer on one line, and success where it was taken."""
    with running_receiver() as receiver:
        good = tidegate(out, "send-test", f"{receiver.url}/hook")
        receiver.default = Reply(401)
        bad = tidegate(out, "send-test", f"{receiver.url}/hook")
    assert (good.returncode, good.stdout) == (0, "200 OK\n")
    assert (bad.returncode, bad.stdout) == (1, "401 Unauthorized\n")
    assert verify(receiver.received[0].body, receiver.received[0].headers, SECRET)["type"] == "tidegate.test"


def test_test_event_keeps_to_the_rules(out: Outgoing) -> None:
    """It goes through the same door, and is signed or not sent."""
    refused = tidegate(out, "send-test", "http://192.168.0.1/")
    assert (refused.returncode, refused.stdout) == (1, "The host of this URL is not a public one.\n")
    unsigned = tidegate(out, "send-test", "http://127.0.0.1/", TIDEGATE_WEBHOOK_SECRET="")
    assert unsigned.returncode == 1
    assert "TIDEGATE_WEBHOOK_SECRET is not set" in unsigned.stderr


def test_fresh_secret_is_one_that_is_taken(out: Outgoing) -> None:
    """What is printed can be put into the environment as it is."""
    load_settings({}, webhook_secret=tidegate(out, "secret").stdout.strip())


class ExampleReceiver(ServerProcess):
    """``examples/webhook_receiver.py``."""

    def __init__(self, folder: Path) -> None:
        (self.port,) = free_ports(1)
        command = [sys.executable, "-W", "error", str(EXAMPLE), str(self.port)]
        environ = {**os.environ, "WEBHOOK_SECRET": SECRET, "PYTHONPATH": str(ROOT)}
        super().__init__(command, log=folder / "receiver.log", environ=environ)

    def is_ready(self) -> bool:
        """Whether something listens; a wrong request is refused, and not printed."""
        import httpx

        try:
            return httpx.post(f"http://127.0.0.1:{self.port}/", content=b"{}", timeout=1).status_code == 400
        except httpx.HTTPError:
            return False


def test_example_receiver_takes_what_is_sent(out: Outgoing) -> None:
    """It refuses what is not signed, and prints the ends of jobs."""
    receiver = ExampleReceiver(out.tmp_path).start()
    try:
        (job_id,) = out.submit(f"http://127.0.0.1:{receiver.port}/hook")
        (wanted,) = out.end([job_id])
        with out.worker():
            assert out.wait_for(wanted, DeliveryState.DELIVERED).status == 204
        wait_until(lambda: f"{wanted} job.succeeded {job_id}" in receiver.log.read_text())
    finally:
        receiver.stop()


def test_readme_shows_the_example_receiver() -> None:
    """As it is, in fifteen lines at most beside what it imports."""
    shown = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = EXAMPLE.read_text().partition('"""\n\n')[2]
    assert program in shown
    lines = [line for line in program.splitlines() if line and not line.startswith(("import", "from"))]
    assert len(lines) <= 15
