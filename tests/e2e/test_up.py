"""``tidegate up``: a stack that serves, ends on demand, and never leaves anything behind."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import redis

from tests.e2e.stack_process import CHECKOUT, TidegateProcess, tidegate
from tidegate.local.ports import claim_ports

FREE_PORTS = ("--api-port", "0", "--flower-port", "0")
REDIS_ALONE = tuple(word for part in ("triton", "worker", "outbound", "api", "flower") for word in ("--without", part))


@dataclass(frozen=True)
class Stack:
    """A stack that is up.

    Attributes:
        process: the command that runs it.
        status: what its status file says.
    """

    process: TidegateProcess
    status: dict[str, Any]

    def url(self, part: str) -> str:
        """Where a part is reached."""
        return str(self.status["parts"][part]["url"])

    def pid(self, part: str) -> int:
        """The process id of a part."""
        return int(self.status["parts"][part]["pid"])


def started(process: TidegateProcess, status_file: Path) -> Stack:
    """Wait until it is up."""
    process.wait_until(status_file.exists)
    return Stack(process, json.loads(status_file.read_text()))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The whole stack, for tests that leave it as they found it."""
    folder = tmp_path_factory.mktemp("up")
    status_file = folder / "status.json"
    with tidegate("up", *FREE_PORTS, "--workers", "2", "--status-file", str(status_file), folder=folder) as process:
        yield started(process, status_file)


def test_up_tells_where_every_part_is(stack: Stack) -> None:
    """The status file names a living process for each part, and a port that answers for each that listens."""
    parts = stack.status["parts"]
    assert list(parts) == ["redis", "triton", "worker-1", "worker-2", "outbound", "api", "flower"]
    for part in parts.values():
        assert psutil.pid_exists(part["pid"])
        if part["port"]:
            socket.create_connection(("127.0.0.1", part["port"]), timeout=5).close()


def test_up_names_programs_and_not_the_shells_around_them(stack: Stack) -> None:
    """A signal to a pid of the status file reaches the part itself."""
    assert "redis-server" in psutil.Process(stack.pid("redis")).name()
    assert psutil.Process(stack.pid("triton")).name() == "tritonserver"
    assert "uvicorn" in psutil.Process(stack.pid("api")).cmdline()


def test_up_listens_on_loopback_alone(stack: Stack) -> None:
    """No process of the stack accepts connections from another machine."""
    listening = {
        connection.laddr.ip
        for process in stack.process.family()
        for connection in process.net_connections(kind="tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening
    assert {address.removeprefix("::ffff:") for address in listening} == {"127.0.0.1"}


def test_up_prints_a_curl_line_that_works_when_pasted(stack: Stack) -> None:
    """A shell that gets the line as it stands prints a job that succeeded."""
    (line,) = [line for line in stack.process.printed.splitlines() if "curl" in line]
    answer = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=30, check=True)
    job = json.loads(answer.stdout)
    assert job["status"] == "succeeded"
    assert job["result"]["predictions"][0]["class_name"]


def test_up_shows_every_job_in_flower(stack: Stack) -> None:
    """A job sent to the API is a task of its own in Flower, with its end and its worker."""
    (photo,) = [word for word in shlex.split(stack.process.printed) if word.startswith("image=@")]
    with Path(photo.removeprefix("image=@")).open("rb") as image, httpx.Client(trust_env=False, timeout=10) as client:
        job = client.post(f"{stack.url('api')}/v1/jobs", files={"image": image}).json()
        task: dict[str, Any] = {}
        deadline = time.monotonic() + 20
        while task.get("state") != "SUCCESS":
            assert time.monotonic() < deadline, f"Flower shows {task}"
            answer = client.get(f"{stack.url('flower')}/api/task/info/{job['id']}")
            task = answer.json() if answer.is_success else {}
            time.sleep(0.1)
    assert task["name"] == "tidegate.classify"
    assert task["worker"] in {"worker-1@localhost", "worker-2@localhost"}


def test_up_tells_what_a_command_started_by_hand_needs(stack: Stack) -> None:
    """With the environment of the status file, ``celery -A worker.app`` joins the stack."""
    answer = subprocess.run(
        [sys.executable, "-m", "celery", "-A", "worker.app", "inspect", "ping", "--timeout", "2", "--json"],
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)} | stack.status["environment"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(answer.stdout).keys() == {"worker-1@localhost", "worker-2@localhost", "outbound@localhost"}


def test_up_ends_with_success_on_ctrl_c_and_leaves_nothing_behind(tmp_path: Path) -> None:
    """Ctrl-C is how one ends it: exit code 0, no process, no temporary file, no status file."""
    status_file = tmp_path / "status.json"
    with tidegate("up", *FREE_PORTS, "--status-file", str(status_file), folder=tmp_path) as process:
        started(process, status_file)
        process.press_ctrl_c()
        assert process.wait() == 0, process.printed
        assert process.family() == []
        assert list(process.temporary.iterdir()) == []
        assert not status_file.exists()


def test_up_leaves_no_process_behind_when_it_is_killed(tmp_path: Path) -> None:
    """After a kill -9 of the supervisor, Redis, Triton, the workers and all their children end by themselves."""
    status_file = tmp_path / "status.json"
    with tidegate("up", *FREE_PORTS, "--status-file", str(status_file), folder=tmp_path) as process:
        started(process, status_file)
        family = process.family()
        process.send(signal.SIGKILL)
        process.wait()
        _, alive = psutil.wait_procs(family, timeout=30)
        assert [one for one in alive if one.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_up_ends_with_success_on_every_signal_that_asks_for_it(tmp_path: Path, number: signal.Signals) -> None:
    """A service manager, a closed terminal and a person all end a served stack without a failure."""
    status_file = tmp_path / "status.json"
    with tidegate("up", *REDIS_ALONE, "--status-file", str(status_file), folder=tmp_path) as process:
        started(process, status_file)
        process.send(number)
        assert process.wait() == 0, process.printed
        assert process.family() == []


def test_up_says_which_part_died_while_it_served(tmp_path: Path) -> None:
    """A part that is killed ends the stack with its name and what to do."""
    status_file = tmp_path / "status.json"
    with tidegate("up", *REDIS_ALONE, "--status-file", str(status_file), folder=tmp_path) as process:
        os.kill(started(process, status_file).pid("redis"), signal.SIGKILL)
        assert process.wait() == 1
        assert "tidegate: redis was ended by SIGKILL" in process.printed
        assert process.family() == []


def test_up_names_a_port_that_is_taken_and_the_option_that_moves_it(tmp_path: Path) -> None:
    """Nothing is started when somebody else listens where Redis should."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with tidegate("up", *REDIS_ALONE, "--redis-port", str(port), folder=tmp_path) as process:
            assert process.wait() == 1
            assert f"redis cannot start: port {port} is taken" in process.printed
            assert "--redis-port" in process.printed
            assert "Traceback" not in process.printed
            assert process.family() == []


def test_up_shows_the_last_lines_of_a_part_that_fails_to_start(tmp_path: Path) -> None:
    """A Redis that cannot read its data says so itself, and the advice points at the folder."""
    data_dir = tmp_path / "data"
    data_dir.mkdir()
    (data_dir / "appendonly.aof").write_text("this is no append-only file\n")
    with tidegate("up", *REDIS_ALONE, "--data-dir", str(data_dir), folder=tmp_path) as process:
        assert process.wait() == 1
        assert "tidegate: redis ended with exit code 1" in process.printed
        assert "append only file" in process.printed
        assert f"If it cannot read {data_dir}, name another --data-dir." in process.printed


def test_up_keeps_what_redis_had_in_its_data_dir(tmp_path: Path) -> None:
    """With ``--data-dir`` the next run finds what the last one left."""
    port = str(claim_ports({"redis": 0})["redis"])
    for run in ("first", "second"):
        folder = tmp_path / run
        folder.mkdir()
        status_file = folder / "status.json"
        options = ("--redis-port", port, "--data-dir", str(tmp_path / "data"), "--status-file", str(status_file))
        with tidegate("up", *REDIS_ALONE, *options, folder=folder) as process:
            url = started(process, status_file).url("redis")
            with redis.Redis.from_url(url) as client:
                client.rpush("runs", run)
                kept = client.lrange("runs", 0, -1)
            process.send(signal.SIGTERM)
            assert process.wait() == 0
    assert kept == [b"first", b"second"]


def test_up_leaves_out_what_runs_elsewhere(tmp_path: Path) -> None:
    """``--without redis`` makes the other parts use the Redis that TIDEGATE_REDIS_URL names."""
    folders = [tmp_path / name for name in ("theirs", "ours")]
    status_files = [folder / "status.json" for folder in folders]
    for folder in folders:
        folder.mkdir()
    with tidegate("up", *REDIS_ALONE, "--status-file", str(status_files[0]), folder=folders[0]) as process:
        environ = started(process, status_files[0]).status["environment"]
        rest = [word for part in ("redis", "triton", "worker", "outbound", "flower") for word in ("--without", part)]
        options = (*rest, "--api-port", "0", "--status-file", str(status_files[1]))
        with tidegate("up", *options, folder=folders[1], environ=environ) as ours:
            api = started(ours, status_files[1])
            assert list(api.status["parts"]) == ["api"]
            assert api.status["environment"]["TIDEGATE_REDIS_URL"] == environ["TIDEGATE_REDIS_URL"]
            answer = httpx.get(f"{api.url('api')}/v1/models", trust_env=False)
            assert answer.json()["models"] == []


def test_up_says_what_is_missing_when_the_time_is_over(tmp_path: Path) -> None:
    """A worker that finds no Triton is named when the wait ends, and the stack does not serve half."""
    nowhere = claim_ports({"triton": 0})["triton"]
    left_out = [word for part in ("triton", "outbound", "api", "flower") for word in ("--without", part)]
    with tidegate(
        "up", *left_out, "--timeout", "6", folder=tmp_path, environ={"TIDEGATE_TRITON_URL": f"127.0.0.1:{nowhere}"}
    ) as process:
        assert process.wait() == 1
        assert "worker-1 was not ready within 6 s: no model is ready" in process.printed
        assert process.family() == []
