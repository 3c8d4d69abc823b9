"""The commands that speak to the API, run as a person or a script runs them, on a real Tidegate."""

from __future__ import annotations

import csv
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.server_process import free_ports
from tests.integration.site import Site, running_site
from tests.integration.stub_triton import CLASSES, MODEL, answer, hold, image_of
from tests.integration.workers import environment, wait_until
from tidegate.client import Client
from tidegate.client.exchanges import HOLD_SECONDS
from tidegate.jobs import State, new_job_id

CHECKOUT = Path(__file__).resolve().parents[2]

#: Runs ``tidegate`` and tells its peak of memory, in KiB, on stderr.
MEASURED = """
import resource, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_module("tidegate.cli")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def site(redis_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The Tidegate of all tests here."""
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


class Shell:
    """Runs ``tidegate`` as a process in a folder, with the site's addresses in its environment."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.folder = folder
        self.environ = {
            **environment(site.rig.settings),
            "TIDEGATE_CLIENT_URL": site.url,
            "PYTHONPATH": str(CHECKOUT),
            "TERM": "xterm-256color",
        }
        self.environ.pop("NO_COLOR", None)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start it; its output goes into pipes."""
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        command = [sys.executable, "-m", "tidegate.cli", *arguments]
        return subprocess.Popen(command, cwd=self.folder, env=self.environ, text=True, **pipes)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def run_on_terminal(self, *arguments: str) -> str:
        """Run it to its end on a terminal, and give all that the terminal got."""
        ours, its = pty.openpty()
        try:
            with self.start(*arguments, stdout=its, stderr=its) as process:
                os.close(its)
                return b"".join(iter(lambda: _read(ours), b"")).decode()
        finally:
            process.wait(100)
            os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # Linux's way to say that nobody writes any more
        return b""


@pytest.fixture
def shell(site: Site, tmp_path: Path) -> Shell:
    """In an empty folder."""
    return Shell(site, tmp_path)


def photos(folder: Path, count: int) -> Path:
    """A folder with that many images, each of the class of its number."""
    folder.mkdir()
    for number in range(count):
        (folder / f"{number:05}.png").write_bytes(image_of(number % CLASSES))
    return folder


def rows(table: Path) -> list[dict[str, str]]:
    """What stands in a CSV file."""
    with table.open(newline="") as file:
        return list(csv.DictReader(file))


def submitted(site: Site) -> int:
    """How many jobs have ended well so far, by the ledger's own count."""
    count: Any = site.rig.client.redis.hget(f"{site.rig.settings.key_prefix}stats:{MODEL}", State.SUCCEEDED)
    return int(count or 0)


def accepted(site: Site) -> int:
    """How many jobs there are, those that have ended not long ago included."""
    with Client(site.url) as client:
        return sum(1 for _ in client.jobs())


def interrupt(process: subprocess.Popen[str]) -> None:
    """Press Ctrl-C, after which it has to end before an answer that is held, or the model, would let it go on."""
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HOLD_SECONDS / 2)


@pytest.fixture
def stopped(site: Site) -> Iterator[threading.Event]:
    """The model stands still until the event is set."""
    go = threading.Event()
    site.rig.stub.behaviour = hold(go, 60.0)
    yield go
    go.set()
    site.rig.stub.behaviour = answer


def test_submit_tells_ids_that_job_finds(shell: Shell) -> None:
    """Without --wait each image's job is told, and ``tidegate job`` knows what became of it."""
    photos(shell.folder / "photos", 2)
    ended = shell.run("submit", "photos")
    assert (ended.returncode, ended.stderr) == (0, "")
    jobs = dict(line.split("\t") for line in ended.stdout.splitlines())
    assert set(jobs) == {"photos/00000.png", "photos/00001.png"}
    watched = shell.run("job", jobs["photos/00001.png"], "--watch")
    assert watched.returncode == 0
    assert re.search(r"^class +0\.99\d  label1$", watched.stdout, re.MULTILINE)
    document = json.loads(shell.run("job", jobs["photos/00001.png"], "--json").stdout)
    assert document["result"]["predictions"][0]["class_id"] == 1


def test_submit_waits_for_answers_and_fails_where_one_does(shell: Shell) -> None:
    """Good images are told on stdout, bad ones on stderr, and the exit code says that there was one."""
    photos(shell.folder / "photos", 20)
    (shell.folder / "photos" / "broken.png").write_bytes(image_of(1)[:-30])
    ended = shell.run("submit", "photos", "--wait", "--model", MODEL, "--top-k", "2", "--csv", "table.csv")
    assert ended.returncode == 1
    told = {line.split("\t")[0]: line.split("\t")[1] for line in ended.stdout.splitlines()}
    assert told == {f"photos/{number:05}.png": f"label{number % CLASSES}" for number in range(20)}
    (failure,) = ended.stderr.splitlines()
    assert failure.startswith("tidegate: photos/broken.png: image_corrupt: ")
    table = rows(shell.folder / "table.csv")
    assert len(table) == 20 * 2 + 1
    assert {row["image"]: row["class_id"] for row in table if row["rank"] == "1"} == {
        f"photos/{number:05}.png": str(number % CLASSES) for number in range(20)
    }


def test_submit_as_json_is_a_document_an_image(shell: Shell) -> None:
    """Every image is on stdout, and nothing else anywhere."""
    photos(shell.folder / "photos", 3)
    (shell.folder / "photos" / "none.png").write_bytes(b"no image")
    ended = shell.run("submit", "photos", "--wait", "--json")
    documents = [json.loads(line) for line in ended.stdout.splitlines()]
    assert (ended.returncode, ended.stderr) == (1, "")
    assert {document["image"]: bool(document["error"]) for document in documents} == {
        "photos/00000.png": False, "photos/00001.png": False, "photos/00002.png": False, "photos/none.png": True
    }  # fmt: skip


def test_submit_goes_on_after_ctrl_c(shell: Shell, site: Site) -> None:
    """With a journal the next run does what is left: every image is in the table once.

    What was under way is handed in again under the same key, so on an API that reads it nothing runs twice.
    """
    photos(shell.folder / "photos", 600)
    command = ["submit", "photos", "--csv", "table.csv", "--resume", "journal", "--concurrency", "8"]
    before = submitted(site)
    with shell.start(*command) as process:
        assert process.stdout is not None
        for _ in range(100):
            process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert re.search(r"interrupted with \d+ of 600 images done; the same command goes on", err)
    first = {row["image"] for row in rows(shell.folder / "table.csv")}
    assert 100 <= len(first) < 600
    second = shell.run(*command)
    assert (second.returncode, second.stderr) == (0, "")
    assert len(second.stdout.splitlines()) == 600 - len(first)
    counted = [row["image"] for row in rows(shell.folder / "table.csv") if row["rank"] == "1"]
    assert sorted(counted) == [f"photos/{number:05}.png" for number in range(600)]
    under_way = 0 if site.knows_repetitions else 8
    assert 600 <= submitted(site) - before <= 600 + under_way
    third = shell.run(*command)
    assert (third.returncode, third.stdout) == (0, "")


def test_submit_hands_in_again_what_is_no_longer_kept(shell: Shell, site: Site) -> None:
    """Who comes for the answers after they have gone gets new ones, and is not told of a key."""
    photos(shell.folder / "photos", 20)
    assert shell.run("submit", "photos", "--resume", "journal").returncode == 0
    ids = [json.loads(line)["job"] for line in (shell.folder / "journal").read_text().splitlines()[1:]]
    redis, prefix = site.rig.client.redis, site.rig.settings.key_prefix
    wait_until(lambda: all(redis.ttl(f"{prefix}job:{job_id}") > 0 for job_id in ids))
    redis.delete(*(f"{prefix}job:{job_id}" for job_id in ids[:15]))
    command = ["submit", "photos", "--resume", "journal", "--csv", "table.csv"]
    second = shell.run(*command)
    assert (second.returncode, second.stderr) == (0, "")
    table = [row for row in rows(shell.folder / "table.csv") if row["rank"] == "1"]
    assert sorted(row["image"] for row in table) == [f"photos/{number:05}.png" for number in range(20)]
    assert {row["job_id"] for row in table} & set(ids) == set(ids[15:])
    third = shell.run(*command)
    assert (third.returncode, third.stdout) == (0, "")


@pytest.mark.parametrize("options", [["--wait"], ["--wait", "--resume", "journal"]], ids=["in bulk", "by keys"])
def test_submit_is_interrupted_at_once(shell: Shell, site: Site, stopped: threading.Event, options: list[str]) -> None:
    """Ctrl-C does not wait for jobs that do not end."""
    photos(shell.folder / "photos", 10)
    before = accepted(site)
    with shell.start("submit", "photos", *options) as process:
        wait_until(lambda: accepted(site) == before + 10)
        interrupt(process)
    assert process.returncode == 128 + signal.SIGINT


def test_watch_is_interrupted_at_once(shell: Shell, stopped: threading.Event) -> None:
    """Ctrl-C does not wait for the answer that is held."""
    photos(shell.folder / "photos", 1)
    (line,) = shell.run("submit", "photos").stdout.splitlines()
    with shell.start("job", line.split("\t")[1], "--watch") as process:
        assert process.stdout is not None
        assert re.search(r"\t(queued|running)\b", process.stdout.readline())
        interrupt(process)
    assert process.returncode == 128 + signal.SIGINT


def test_program_that_waits_is_interrupted_at_once(shell: Shell, site: Site, stopped: threading.Event) -> None:
    """Nor does a program of the client's, whose answer may be held for much longer."""
    program = "import sys; from tidegate.client import Client; Client(sys.argv[1]).submit(sys.argv[2]).wait()"
    photo = photos(shell.folder / "photos", 1) / "00000.png"
    before = accepted(site)
    command = [sys.executable, "-c", program, site.url, str(photo)]
    with subprocess.Popen(command, env=shell.environ, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: accepted(site) == before + 1)
        interrupt(process)
    assert process.returncode == -signal.SIGINT


def test_submit_takes_thousands_in_flat_memory(shell: Shell) -> None:
    """Ten times the images take no more memory than a little for their names."""
    photos(shell.folder / "few", 200)
    photos(shell.folder / "many", 2000)
    peaks = []
    for name in ("few", "many"):
        command = [sys.executable, "-c", MEASURED, "tidegate", "submit", name, "--wait"]
        ended = subprocess.run(
            command, cwd=shell.folder, env=shell.environ, capture_output=True, text=True, check=True, timeout=110
        )
        peaks.append(int(ended.stderr) / 1024)
    few_mib, many_mib = peaks
    assert many_mib - few_mib < 12


def test_submit_shows_progress_on_a_terminal_alone(shell: Shell) -> None:
    """Rate, waiting, failed and time left; in a pipe there is not a trace of it."""
    photos(shell.folder / "photos", 50)
    shown = shell.run_on_terminal("submit", "photos", "--wait", "--concurrency", "2")
    for word in ("50/50", "/s", "waiting", "failed", "left", "50 of 50 images done."):
        assert word in shown
    assert "\x1b[" in shown
    assert "50/50" not in shell.run_on_terminal("submit", "photos", "--wait", "--quiet")
    piped = shell.run("submit", "photos", "--wait")
    assert "\x1b" not in piped.stdout + piped.stderr
    assert len(piped.stdout.splitlines()) == 50


def test_no_color_is_honoured(shell: Shell) -> None:
    """NO_COLOR takes the colours, on a terminal too, from the progress bar and from tables."""
    photos(shell.folder / "photos", 5)
    color = re.compile(r"\x1b\[[0-9;]*m")
    in_color = shell.run_on_terminal("doctor") + shell.run_on_terminal("submit", "photos", "--wait")
    shell.environ["NO_COLOR"] = "1"
    plain = shell.run_on_terminal("doctor") + shell.run_on_terminal("submit", "photos", "--wait")
    colors = {code for code in color.findall(in_color) if re.search(r"3\d", code)}
    assert colors
    assert not colors & set(color.findall(plain))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["submit", "nowhere.png"], 2),
        (["submit", "photo.png", "--resume", "photo.png"], 2),
        (["submit", "photo.png", "--model", "nowhere"], 4),
        (["submit", "photo.png", "--top-k", "1000"], 4),
        (["submit", "none.png"], 1),
        (["job", new_job_id()], 4),
        (["cancel", new_job_id()], 4),
    ],
)
def test_exit_code_tells_what_went_wrong(shell: Shell, arguments: list[str], code: int) -> None:
    """A script can tell a wrong command from a refusal and from an image that is none."""
    (shell.folder / "photo.png").write_bytes(image_of(1))
    (shell.folder / "none.png").write_bytes(b"no image")
    ended = shell.run(*arguments)
    assert ended.returncode == code
    assert ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "arguments", [["submit", "photo.png", "--patience", "0.1"], ["job", "x"], ["cancel", "x"], ["models"]]
)
def test_api_that_is_not_there_is_told_by_its_own_code(shell: Shell, arguments: list[str]) -> None:
    """It may go well later, which is no failure of what was asked for."""
    (port,) = free_ports(1)
    (shell.folder / "photo.png").write_bytes(image_of(1))
    ended = shell.run(*arguments, "--api", f"http://127.0.0.1:{port}")
    assert ended.returncode == 3
    assert ended.stderr.startswith(f"tidegate: The API at http://127.0.0.1:{port} does not answer")


def test_jobs_are_canceled_by_id(shell: Shell, stopped: threading.Event) -> None:
    """One or many; what became of each is told, and ``tidegate job`` then fails as for every job without a result."""
    photos(shell.folder / "photos", 3)
    ids = [line.split("\t")[1] for line in shell.run("submit", "photos").stdout.splitlines()]
    canceled = shell.run("cancel", *ids[:2])
    assert canceled.returncode == 0
    assert canceled.stdout.splitlines() == [f"{job_id}\tcanceled" for job_id in ids[:2]]
    assert json.loads(shell.run("cancel", ids[2], "--json").stdout)["status"] == "canceled"
    told = shell.run("job", ids[0])
    assert told.returncode == 1
    assert re.search(r"^status +canceled$", told.stdout, re.MULTILINE)


def test_models_are_listed_for_people_and_programs(shell: Shell) -> None:
    """With state and limits, whole also in a pipe."""
    assert re.search(rf"\b{MODEL}\b.*\bready\b.*\b{CLASSES}\b", shell.run("models").stdout)
    (model,) = json.loads(shell.run("models", "--json").stdout)
    assert (model["name"], model["state"], model["classes"]) == (MODEL, "ready", CLASSES)


def test_queue_tells_how_much_waits_and_how_fast_it_drains(shell: Shell, stopped: threading.Event) -> None:
    """For people as a table, for programs as JSON, a model a row."""
    photos(shell.folder / "photos", 100)
    shell.run("submit", "photos")
    (queue,) = json.loads(shell.run("queue", "--json").stdout)
    assert queue["model"] == MODEL
    assert queue["waiting"] + queue["running"] == 100
    assert queue["waiting"] > 0
    assert queue["oldest_seconds"] > 0
    assert re.search(rf"{MODEL}.* {queue['waiting']} ", shell.run("queue").stdout)
    stopped.set()
    wait_until(lambda: json.loads(shell.run("queue", "--json").stdout)[0]["waiting"] == 0)
    (queue,) = json.loads(shell.run("queue", "--json").stdout)
    assert queue["rate"] > 0


def test_queue_is_watched_until_ctrl_c(shell: Shell) -> None:
    """A document a look, for as long as anybody reads."""
    with shell.start("queue", "--watch", "--every", "0.2", "--json") as process:
        assert process.stdout is not None
        assert [json.loads(process.stdout.readline())[0]["model"] for _ in range(3)] == [MODEL] * 3
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (128 + signal.SIGINT, "")


def test_doctor_finds_everything_in_order(shell: Shell) -> None:
    """On a Tidegate that works nothing is at fault, and the model is seen in Triton and by the workers."""
    ended = shell.run("doctor", "--json")
    findings = {finding["subject"]: finding for finding in json.loads(ended.stdout)}
    faults = {name: finding for name, finding in findings.items() if finding["verdict"] == "fault"}
    assert (ended.returncode, faults) == (0, {})
    assert findings[f"model {MODEL}"]["facts"].endswith(f"{CLASSES} classes")
    assert findings["workers"]["facts"] == f"they serve {MODEL}"
    assert findings["clock"]["verdict"] == "fine"


def test_doctor_says_what_to_do_where_nothing_is_there(shell: Shell) -> None:
    """Each part that is missing is a fault with advice, and the exit code says so."""
    shell.environ |= {"TIDEGATE_REDIS_URL": "redis://127.0.0.1:1/0", "TIDEGATE_TRITON_URL": "127.0.0.1:1"}
    ended = shell.run("doctor")
    assert ended.returncode == 1
    assert re.search(r"^fault +redis: .*\n +Start Redis, or set TIDEGATE_REDIS_URL", ended.stdout, re.MULTILINE)
    assert re.search(r"^fault +triton: .*\n +Start Triton, or set TIDEGATE_TRITON_URL", ended.stdout, re.MULTILINE)


@pytest.mark.parametrize(("shell_name", "words"), [("bash", "complete -o"), ("zsh", "compdef"), ("fish", "complete")])
def test_completion_is_a_script_for_the_shell(shell: Shell, shell_name: str, words: str) -> None:
    """Printed, so that the shell's own start-up file can read it."""
    ended = shell.run("completion", shell_name)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert words in ended.stdout


def test_completion_knows_commands_and_options(shell: Shell) -> None:
    """What bash would offer after the first letters."""
    shell.environ |= {"COMP_WORDS": "tidegate submit --res", "COMP_CWORD": "2", "_TIDEGATE_COMPLETE": "complete_bash"}
    assert "--resume" in shell.run().stdout.split()
