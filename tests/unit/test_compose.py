"""``docker-compose.yml`` and ``deploy/Dockerfile``, checked as far as that goes without a Docker engine.

Their structure is read as data, and every command in them is one that this checkout really has.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
import tornado.options
import yaml
from redis.backoff import NoBackoff
from redis.retry import Retry

from tidegate.local.launch import tied_to_parent
from tidegate.local.redis import find_redis_server
from tidegate.local.triton import find_triton, triton_environment
from tidegate.settings import PREFIX, Settings, load_settings

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^[\w./-]+:\d+(\.\d+)+[\w.-]*$|^[\w./-]+:\d\d\.\d\d-py3$")
ONE_SHOT = "models"
DURATION = re.compile(r"^(\d+)s$")

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
SERVERS = sorted(SERVICES.keys() - {ONE_SHOT})


@dataclass
class Stage:
    """One stage of the Dockerfile.

    Attributes:
        base: the image or the earlier stage that it starts from.
        instructions: pairs of (instruction, the rest), in order.
    """

    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    @property
    def command(self) -> list[str]:
        """What a container of this stage runs."""
        (command,) = [rest for name, rest in self.instructions if name == "CMD"]
        return [str(word) for word in json.loads(command)]


def stages() -> dict[str, Stage]:
    """The Dockerfile's stages by name."""
    found: dict[str, Stage] = {}
    lines = re.sub(r"\\\n", " ", (ROOT / "deploy" / "Dockerfile").read_text()).splitlines()
    for line in lines:
        name, _, rest = line.partition(" ")
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            found[stage] = Stage(base)
        elif name.isupper():
            list(found.values())[-1].instructions.append((name, rest))
    return found


STAGES = stages()


def command_of(service: str) -> list[str]:
    """What a service runs: its own command, else that of its image; without the shell that may be around it."""
    definition = SERVICES[service]
    command = definition.get("command") or STAGES[definition["build"]["target"]].command
    if command[:2] == ["sh", "-c"]:
        return shlex.split(command[2].partition("exec ")[2])
    return [str(word) for word in command]


def health_command_of(service: str) -> list[str]:
    """How a service is asked whether it is well, without Docker's own word before it."""
    kind, *words = SERVICES[service]["healthcheck"]["test"]
    return shlex.split(words[0]) if kind == "CMD-SHELL" else [str(word) for word in words]


def options_in(words: list[str]) -> set[str]:
    """The long options among the words of a command."""
    return {word.partition("=")[0] for word in words if word.startswith("--")}


@functools.cache
def help_of(*command: str) -> str:
    """What a command of this checkout says of its options; wide enough that no line is broken."""
    environ = os.environ | {"COLUMNS": "300", "TERM": "dumb"}
    return subprocess.run(
        [sys.executable, "-m", *command, "--help"], env=environ, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout


def seconds(duration: str) -> int:
    """A duration of the compose file."""
    match = DURATION.match(duration)
    assert match, f"{duration} is not in whole seconds"
    return int(match[1])


def always_beside(service: str, other: str) -> bool:
    """Whether every profile that starts one service starts the other, too."""
    starting, needed = (set(SERVICES[name].get("profiles", [])) for name in (service, other))
    return not needed or bool(starting and starting <= needed)


@pytest.mark.parametrize("service", SERVERS)
def test_service_is_watched_and_comes_back(service: str) -> None:
    """Every server has a health check that ends, and is started again when it dies."""
    definition = SERVICES[service]
    assert definition["restart"] == "unless-stopped"
    assert {"test", "interval", "timeout", "retries"} <= definition["healthcheck"].keys()
    assert seconds(definition["healthcheck"]["timeout"]) <= seconds(definition["healthcheck"]["interval"])


@pytest.mark.parametrize("service", SERVICES)
def test_service_has_a_pinned_image_or_is_built_here(service: str) -> None:
    """What runs tomorrow is what ran today."""
    definition = SERVICES[service]
    if "image" in definition:
        assert PINNED.match(definition["image"])
        return
    build = definition["build"]
    assert (ROOT / build["context"] / build["dockerfile"]).samefile(ROOT / "deploy" / "Dockerfile")
    assert build["target"] in STAGES


@pytest.mark.parametrize("service", SERVERS)
def test_service_ends_in_order(service: str) -> None:
    """Signals reach the server through an init, which also reaps, and it has longer than Docker's 10 s to end."""
    assert SERVICES[service]["init"] is True
    assert seconds(SERVICES[service]["stop_grace_period"]) > 10


def test_worker_is_given_longer_than_its_drain() -> None:
    """A batch that has just begun is finished and stored before Docker kills anything."""
    assert seconds(SERVICES["worker"]["stop_grace_period"]) > 2 * load_settings({}).infer_timeout_seconds


@pytest.mark.parametrize("service", SERVICES)
def test_service_waits_for_others_until_they_are_healthy(service: str) -> None:
    """No dependency is satisfied by a container that merely runs, and what may be absent is not required."""
    for other, need in SERVICES[service].get("depends_on", {}).items():
        assert need["condition"] == ("service_completed_successfully" if other == ONE_SHOT else "service_healthy")
        assert need.get("required", True) is always_beside(service, other)


def test_only_the_api_is_published_beyond_this_machine() -> None:
    """Flower is on loopback, and nothing else has a published port."""
    published = {name: definition["ports"] for name, definition in SERVICES.items() if "ports" in definition}
    assert published.keys() == {"api", "flower"}
    assert all(port.startswith("127.0.0.1:") for port in published["flower"])


@pytest.mark.parametrize("service", ["redis", "triton", "triton-cpu"])
def test_ground_is_on_the_inner_network_alone(service: str) -> None:
    """Neither Redis nor a Triton reaches, or is reached from, outside."""
    assert COMPOSE["networks"]["backend"] == {"internal": True}
    assert set(SERVICES[service]["networks"]) == {"backend"}


def test_either_triton_answers_to_the_same_name() -> None:
    """The profile decides which one runs, and no setting of ours changes with it."""
    assert SERVICES["triton"]["profiles"] == ["gpu"]
    assert SERVICES["triton-cpu"]["profiles"] == ["cpu"]
    assert SERVICES["triton-cpu"]["networks"]["backend"]["aliases"] == ["triton"]
    assert SERVICES["worker"]["environment"]["TIDEGATE_TRITON_URL"] == "triton:8001"


def test_no_password_has_a_default() -> None:
    """Compose refuses to start before somebody has chosen one; the example leaves them empty."""
    used = re.findall(r"\$\{(\w*(?:PASSWORD|USER))([^}]*)\}", (ROOT / "docker-compose.yml").read_text())
    assert {name for name, _ in used} == {"REDIS_PASSWORD", "FLOWER_USER", "FLOWER_PASSWORD"}
    assert all(rest.startswith(":?") for _, rest in used)
    example = (ROOT / "deploy" / "compose.env.example").read_text().splitlines()
    assert {f"{name}=" for name, _ in used} <= set(example)


@pytest.mark.parametrize("service", ["api", "worker", "outbound", "flower"])
def test_settings_of_a_service_are_settings_of_tidegate(service: str) -> None:
    """A misspelt variable would keep the container from starting."""
    ours = {name for name in SERVICES[service]["environment"] if name.startswith(PREFIX)}
    assert {"TIDEGATE_REDIS_URL", "TIDEGATE_TRITON_URL"} <= ours
    assert {name.removeprefix(PREFIX).lower() for name in ours} <= Settings.model_fields.keys()


@pytest.mark.parametrize("service", SERVERS)
def test_service_runs_without_privileges(service: str) -> None:
    """Not as root, without capabilities, and with a root file system of ours that cannot be written."""
    definition = SERVICES[service]
    assert definition["cap_drop"] == ["ALL"]
    assert definition["security_opt"] == ["no-new-privileges:true"]
    if "build" in definition:
        assert definition["read_only"] is True
        assert ("USER", "tidegate") in STAGES["runtime"].instructions
        assert STAGES[definition["build"]["target"]].base == "runtime"
    else:
        assert definition["user"]


@pytest.mark.parametrize("service", ["worker", "outbound"])
def test_worker_command_exists(service: str) -> None:
    """``celery -A worker.app worker`` takes the options it is given, and so does its health check."""
    command, check = command_of(service), health_command_of(service)
    assert command[:4] == ["celery", "-A", "worker.app", "worker"]
    assert options_in(command) <= options_in(help_of("celery", "-A", "worker.app", "worker").replace(",", " ").split())
    assert check[:5] == ["celery", "-A", "worker.app", "inspect", "ping"]
    assert options_in(check) <= options_in(help_of("celery", "-A", "worker.app", "inspect").replace(",", " ").split())


def test_flower_command_exists() -> None:
    """Every option is one of Flower's."""
    importlib.import_module("flower.options")
    command = command_of("flower")
    assert command[:4] == ["celery", "-A", "worker.app", "flower"]
    assert {option.removeprefix("--") for option in options_in(command)} <= set(tornado.options.options)


def test_api_command_exists() -> None:
    """Uvicorn takes its options, and finds the factory."""
    command = command_of("api")
    assert command[:3] == ["uvicorn", "--factory", "api.app:create_app"]
    assert options_in(command) <= options_in(help_of("uvicorn").replace(",", " ").split())
    assert callable(importlib.import_module("api.app").create_app)


def test_triton_commands_exist() -> None:
    """The embedded Triton's own command takes its options, and the server takes those of the GPU image."""
    embedded = command_of("triton-cpu")
    assert embedded[:2] == ["tidegate", "triton"]
    assert options_in(embedded) <= options_in(help_of("tidegate.cli", "triton").split())
    real = command_of("triton")
    assert real[0] == "tritonserver"
    usage = subprocess.run(
        [find_triton().server, "--help"],
        env=triton_environment(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert options_in(real) <= options_in((usage.stdout + usage.stderr).split())


def test_redis_command_runs_with_a_password_and_keeps_what_it_accepts(tmp_path: Path) -> None:
    """The shell line starts a real Redis that wants the password, writes an append-only file and never evicts."""
    script = SERVICES["redis"]["command"][2].replace("$$", "$").replace("/tmp/", f"{tmp_path}/")
    script = script.replace("/data", str(tmp_path)).replace("redis-server", str(find_redis_server()))
    socket = tmp_path / "redis.sock"
    server = subprocess.Popen(
        tied_to_parent(["sh", "-c", f"{script} --port 0 --unixsocket {socket}"]),
        env=os.environ | {"REDISCLI_AUTH": "s3cret"},
    )
    try:
        with redis.Redis(unix_socket_path=str(socket), password="s3cret") as client:
            wait_for(socket)
            assert client.config_get("appendonly") == {"appendonly": "yes"}
            assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
            assert client.config_get("auto-aof-rewrite-min-size") == {"auto-aof-rewrite-min-size": str(1024**3)}
            assert client.config_get("maxmemory")["maxmemory"] == str(4 * 1024**3)
        once = Retry(NoBackoff(), 0)
        with (
            redis.Redis(unix_socket_path=str(socket), retry=once) as stranger,
            pytest.raises(redis.AuthenticationError),
        ):
            stranger.ping()
        assert "s3cret" not in Path(f"/proc/{server.pid}/cmdline").read_text()
    finally:
        server.terminate()
        server.wait(10)


def wait_for(file: Path) -> None:
    """Return once a file is there."""
    deadline = time.monotonic() + 10
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_dockerfile_starts_from_pinned_images() -> None:
    """Every stage stands on an earlier one, or on an image with a version."""
    for stage in STAGES.values():
        assert stage.base in STAGES or PINNED.match(stage.base)


@pytest.mark.parametrize("name", STAGES)
def test_dockerfile_copies_what_exists(name: str) -> None:
    """Each source is a file of the checkout that reaches the builder, or an earlier stage."""
    sent = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
    for words in (rest.split() for instruction, rest in STAGES[name].instructions if instruction == "COPY"):
        if words[0].startswith("--from="):
            assert words[0].removeprefix("--from=") in STAGES
            continue
        for source in words[:-1]:
            assert (ROOT / source).exists()
            assert f"!{source}" in sent


def test_dockerfile_installs_extras_that_exist() -> None:
    """Each image gets one of the extras, at the versions that were tested."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    installed = re.findall(r"pip install (.*)", text)
    assert all("-c constraints.txt" in line for line in installed)
    assert set(re.findall(r"'\.\[(\w+)\]'", text)) == {"api", "worker", "local"}
    assert {"api", "worker", "local"} <= extras.keys()
