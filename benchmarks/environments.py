"""A virtual environment for each peer, made on first use, so that no peer decides which versions we run on."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import ROOT

FOLDER = Path(__file__).parent / ".venvs"
PEERS = Path(__file__).parent / "peers"
INSTALL_TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class Environment:
    """One peer's Python.

    Attributes:
        peer: name of its folder under ``benchmarks/peers``, which holds its ``requirements.txt``.
    """

    peer: str

    @property
    def python(self) -> Path:
        """The interpreter; exists once :meth:`make` has run."""
        return FOLDER / self.peer / "bin" / "python"

    @property
    def _requirements(self) -> Path:
        return PEERS / self.peer / "requirements.txt"

    def make(self) -> Environment:
        """Install what the peer requires, unless that was done before.

        Raises:
            subprocess.CalledProcessError: pip could not install it; what it said is on stderr.
            subprocess.TimeoutExpired: it took longer than 15 minutes.
        """
        wanted = hashlib.sha256(self._requirements.read_bytes() + sys.version.encode()).hexdigest()
        mark = FOLDER / self.peer / "installed"
        if not mark.is_file() or mark.read_text() != wanted:
            venv.create(FOLDER / self.peer, clear=True, with_pip=True)
            self.run("-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(self._requirements))
            mark.write_text(wanted)
        return self

    def run(self, *arguments: str, timeout_seconds: float = INSTALL_TIMEOUT_SECONDS, **environ: str) -> str:
        """Run Python in it, from the project's root, and give what it printed.

        Raises:
            subprocess.CalledProcessError: it failed.
            subprocess.TimeoutExpired: it took too long.
        """
        return subprocess.run(
            [str(self.python), *arguments],
            cwd=ROOT,
            env=self.environ(**environ),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=timeout_seconds,
        ).stdout

    def environ(self, **more: str) -> dict[str, str]:
        """Our environment without what belongs to our own Python or to Tidegate, and some more."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("TIDEGATE_", "VIRTUAL_ENV", "PYTHONPATH"))
        }
        return kept | {"PYTHONPATH": str(ROOT)} | more

    def versions(self) -> dict[str, str]:
        """The versions that are installed of what the requirements name."""
        names = {_name_of(line) for line in self._requirements.read_text().splitlines() if line.strip()}
        lines = self.run("-m", "pip", "freeze", "--disable-pip-version-check").splitlines()
        pairs = (line.partition("==")[::2] for line in lines if "==" in line)
        return {name: version for name, version in pairs if _name_of(name) in names}


def _name_of(requirement: str) -> str:
    name = requirement.strip().lower()
    for end in "=<>[;! ":
        name = name.partition(end)[0]
    return name.replace("_", "-")
