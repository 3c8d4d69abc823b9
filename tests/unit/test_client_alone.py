"""The client package without the rest of Tidegate."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

#: Goes on as if only the named packages were installed beside Python itself, and only the named parts of Tidegate.
REFUSAL = """
import sys
parts, *packages = sys.argv[1:]
allowed = {*sys.stdlib_module_names, "tidegate", *packages}

class Refuse:
    def find_spec(self, name, path=None, target=None):
        top, _, rest = name.partition(".")
        if top.startswith("_sysconfigdata"):  # a part of Python, under a name of the platform
            return
        if top not in allowed or (top == "tidegate" and rest.partition(".")[0] not in parts.split(",")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

import tidegate
sys.meta_path.insert(0, Refuse())
"""
CLASSIFIES = """
import asyncio
import httpx
from tidegate.client import AsyncClient, Client

job = {"id": "1", "status": "succeeded", "model": "m", "created_at": "2026-01-01T00:00:00Z",
       "finished_at": "2026-01-01T00:00:01Z", "result": {"predictions": [{"class_id": 7}]}}
transport = httpx.MockTransport(lambda request: httpx.Response(200, json=job))
print(Client(transport=transport).classify(b"image").top.class_id)
print(asyncio.run(AsyncClient(transport=transport).classify(b"image")).top.class_id)
"""
PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
#: What the distribution needs when no extra is asked for.
BASE = ("httpx", "pydantic")


def installed_below(*names: str) -> Iterator[str]:
    """The import names of distributions and of all that they need in turn, extras left out."""
    seen: set[str] = set()
    left = set(names)
    while left:
        name = left.pop()
        seen.add(name)
        try:
            lines = [line for line in requires(name) or [] if "extra ==" not in line]
        except PackageNotFoundError:
            continue  # it belongs to another version of Python
        left |= {re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in lines} - seen
        yield name.replace("-", "_")


def run(program: str, *, parts: str) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing but the base dependencies is installed."""
    command = [sys.executable, "-c", REFUSAL + program, parts, *installed_below(*BASE)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_client_needs_httpx_and_pydantic_alone() -> None:
    """Where nothing but the base dependencies is installed, both clients classify."""
    answer = run(CLASSIFIES, parts="client")
    assert answer.stderr == ""
    assert answer.stdout.split() == ["7", "7"]


def test_program_says_what_to_install() -> None:
    """The script comes with the client alone, and then names in one line the extra that it needs."""
    script = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]["tidegate"]
    module, function = script.split(":")
    # Of Tidegate all is there: only the packages are not.
    everything = ",".join(path.stem for path in (PYPROJECT.parent / "tidegate").iterdir())
    ended = run(f"from {module} import {function}\n{function}()", parts=everything)
    assert ended.returncode == 1
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert re.fullmatch(r"tidegate: the command line needs \w+, which is not installed: pip install .*core.*", line)
