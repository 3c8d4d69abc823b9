"""The pages of docs as a reader follows them: every example is run, in the order in which it is read."""

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

from tests.docs.api_examples import EXAMPLES
from tests.e2e.stack_process import CHECKOUT, tidegate
from tidegate.settings import PREFIX

DOCS = CHECKOUT / "docs"
SHOWN_API = "http://127.0.0.1:8000"
#: As if the program were on the PATH.
PROGRAM = f'tidegate() {{ "{sys.executable}" -m tidegate.cli "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A running stack, as its status file tells of it."""
    folder = tmp_path_factory.mktemp("docs")
    status = folder / "status.json"
    arguments = ["up", "--api-port", "0", "--without", "flower", "--status-file", str(status)]
    with tidegate(*arguments, folder=folder) as process:
        process.wait_until(status.exists)
        yield json.loads(status.read_text())


@pytest.fixture
def reader(stack: dict[str, Any], tmp_path: Path) -> Reader:
    """Somebody with a shell in a folder that has the examples in it."""
    (tmp_path / "examples").symlink_to(CHECKOUT / "examples")
    return Reader(stack, tmp_path)


class Reader:
    """Runs what stands on a page, with the addresses of the stack in place of those that are shown."""

    def __init__(self, stack: dict[str, Any], folder: Path) -> None:
        self.api = stack["parts"]["api"]["url"]
        self.folder = folder
        self.environ = {name: value for name, value in os.environ.items() if not name.upper().startswith(PREFIX)}
        self.environ |= stack["environment"] | {"PYTHONPATH": str(CHECKOUT), "TIDEGATE_CLIENT_URL": self.api}

    def run(self, *command: str) -> str:
        """Run a command to its end, which must be good, and give what it printed."""
        ended = subprocess.run(
            [word.replace(SHOWN_API, self.api) for word in command],
            cwd=self.folder,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def shell(self, script: str) -> str:
        """Run a script, of which every command must end well."""
        return self.run("bash", "-e", "-o", "pipefail", "-c", PROGRAM + script)


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a language on a page, in order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def missing(shown: Any, real: Any, at: str = "answer") -> list[str]:
    """What is shown and not there. Of fractions only that they are numbers, of texts only what stands before dots."""
    if isinstance(shown, dict) and isinstance(real, dict):
        return [lack for key, value in shown.items() for lack in missing(value, real.get(key), f"{at}.{key}")]
    if isinstance(shown, list) and isinstance(real, list) and len(shown) <= len(real):
        return [lack for place, value in enumerate(shown) for lack in missing(value, real[place], f"{at}[{place}]")]
    if isinstance(shown, str) and isinstance(real, str) and "..." in shown:
        # Ids begin with the time, which differs from the second letter on.
        shown = shown.partition("...")[0][:1]
        real = real[: len(shown)]
    if isinstance(shown, float) and isinstance(real, int | float):
        real = shown
    return [] if shown == real else [f"{at}: {real!r} in place of {shown!r}"]


def pattern(shown: str) -> str:
    """Finds lines in their order, whatever stands between them; an id, and what dots stand for, may be anything."""
    lines = [re.escape(line.rstrip()) for line in shown.splitlines() if line]
    return r" *\n.*?".join(line.replace(r"01978c7e\-\.\.\.", "[0-9a-f-]+").replace(r"\.\.\.", ".*?") for line in lines)


def test_examples_of_the_api_are_answered_as_shown(reader: Reader) -> None:
    """Each call on the page brings what stands below it."""
    for examples in EXAMPLES.values():
        for example in examples:
            printed = reader.shell(example.command)
            if example.language == "text":
                assert re.search(pattern(example.answer), printed, re.DOTALL), printed
                continue
            answer = json.loads(printed)
            assert missing(json.loads(example.answer), answer) == [], example.command
            if "urls" in answer:
                reader.environ["JOB"] = answer["id"]


def test_commands_of_the_cli_page_go_well(reader: Reader) -> None:
    """Every block runs as it stands there; the table and the journal that it speaks of are there after it."""
    printed = [reader.shell(block) for block in blocks("cli.md", "bash")]
    assert re.search(r"^examples/images/coffee\.jpg\tespresso\t0\.\d+$", printed[0], re.MULTILINE)
    assert (reader.folder / "classes.csv").read_text().startswith("image,job_id,status,model")
    assert "efficientnet_lite0" in printed[2]


@pytest.mark.parametrize("place", range(len(blocks("client.md", "python"))))
def test_programs_of_the_client_page_run(reader: Reader, place: int) -> None:
    """Every program runs by itself, and says what is in the photos."""
    printed = reader.run(sys.executable, "-W", "error", "-c", blocks("client.md", "python")[place])
    assert re.search(r"espresso|cat|tabby", printed)
