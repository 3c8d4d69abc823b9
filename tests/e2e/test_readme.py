"""README as a newcomer reads it: its commands run, and its code does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.e2e.stack_process import CHECKOUT, tidegate

README = (CHECKOUT / "README.md").read_text()
SHOWN_API = "http://127.0.0.1:8000"


def blocks(language: str) -> list[str]:
    """The code blocks of a language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running stack's API."""
    folder = tmp_path_factory.mktemp("readme")
    status = folder / "status.json"
    arguments = ["up", "--api-port", "0", "--without", "flower", "--status-file", str(status)]
    with tidegate(*arguments, folder=folder) as process:
        process.wait_until(status.exists)
        yield str(json.loads(status.read_text())["parts"]["api"]["url"])


def test_curl_line_answers_with_a_queued_job(api: str) -> None:
    """The curl line of README is accepted, and its answer has what README shows of it."""
    (line,) = [block for block in blocks("bash") if block.startswith("curl")]
    answer = subprocess.run(
        line.replace(SHOWN_API, api), shell=True, cwd=CHECKOUT, capture_output=True, text=True, check=True
    )
    shown = json.loads(blocks("json")[0])
    job = json.loads(answer.stdout)
    assert shown.keys() <= job.keys()
    assert shown["urls"].keys() <= job["urls"].keys()
    assert (job["model"], job["status"]) == (shown["model"], shown["status"])


def test_python_block_prints_the_top_class(api: str) -> None:
    """The Python of README, run as it stands there, says what is in the photo."""
    (program,) = [block for block in blocks("python") if "classify" in block]
    answer = subprocess.run(
        [sys.executable, "-c", program.replace(SHOWN_API, api)],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == "espresso"


def test_make_targets_that_readme_names_exist() -> None:
    """Every ``make`` command in README is a target of the Makefile."""
    makefile = (CHECKOUT / "Makefile").read_text()
    for target in set(re.findall(r"make ([a-z-]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_parameters_that_readme_shows_are_known() -> None:
    """The ``config.pbtxt`` lines of README use parameters that exist."""
    known = "".join((CHECKOUT / "docs" / page).read_text() for page in ("images.md", "models.md"))
    for key in re.findall(r'key: "(tidegate\.\w+)"', README):
        assert key in known
