"""The processes that questions run: Redis, workers, the API and Flower, each as it ships and on loopback."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import redis

from benchmarks.pace import wait_for
from tests.integration.redis_server import running_redis
from tests.integration.server_process import ServerProcess, free_ports
from tests.integration.workers import Client, environment
from tidegate.catalogue import read_catalogue
from tidegate.settings import Settings, load_settings

#: Large enough for every question's queue. A limit only refuses; it makes nothing faster.
ROOMY = {"max_queued_jobs": 1_000_000, "max_queued_bytes": 64 * 2**30}
LONGEST_COMMAND_SECONDS = 60.0
NULL_APP = "benchmarks.apps.null_worker"
REAL_APP = "worker.app"


P = TypeVar("P", bound="Program")


class Program(ServerProcess):
    """A program that is told to be ready by what it does, and not by what it says."""

    stop_within_seconds = 15.0

    def __init__(self, command: Sequence[str], *, log: Path, environ: Mapping[str, str], ready_url: str = "") -> None:
        super().__init__(command, log=log, environ=environ)
        self._ready_url = ready_url

    def is_ready(self) -> bool:
        """Whether its page answers, where it has one."""
        if not self._ready_url:
            return True
        try:
            return httpx.get(self._ready_url, timeout=1, trust_env=False).is_success
        except httpx.HTTPError:
            return False


@contextmanager
def running(program: P) -> Iterator[P]:
    """Run a program while the block runs; where the block fails, its last lines are shown."""
    try:
        yield program.start()
    except BaseException:
        sys.stderr.write(f"{program.last_lines()}\n")
        raise
    finally:
        program.stop()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder that goes at the end."""
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        yield Path(folder)


@contextmanager
def bench_redis(folder: Path) -> Iterator[redis.Redis]:
    """A Redis of one's own, with the append-only file that we ship with, and a client of it."""
    folder.mkdir()
    with running_redis(folder) as server, redis_client(server.url) as client:
        yield client


def redis_client(url: str) -> redis.Redis:
    """A client that waits for commands on half a gigabyte of queue."""
    return redis.Redis.from_url(url, socket_timeout=LONGEST_COMMAND_SECONDS)


def settle(client: redis.Redis) -> None:
    """Wait until Redis has written down what was queued and no longer rewrites its append-only file."""

    def quiet() -> bool:
        facts: Any = client.info("persistence")
        return not facts["aof_rewrite_in_progress"] and not facts["aof_rewrite_scheduled"]

    wait_for(quiet, seconds=60, what="Redis has rewritten its file")


def url_of(client: redis.Redis) -> str:
    """The address of the Redis behind a client."""
    options = client.connection_pool.connection_kwargs
    return f"redis://{options['host']}:{options['port']}/{options['db']}"


def bench_settings(client: redis.Redis, *, triton_url: str = "127.0.0.1:1", **overrides: Any) -> Settings:
    """The settings that ship, but for addresses and limits."""
    return load_settings({}, redis_url=url_of(client), triton_url=triton_url, **{**ROOMY, **overrides})


def worker_program(
    settings: Settings, folder: Path, *, app: str, concurrency: int, events: bool = False, name: str = "bench"
) -> Program:
    """A Celery worker of ours."""
    command = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@bench", "-c", str(concurrency)]
    command += ["--task-events"] if events else []
    return Program(command, log=folder / f"{name}.log", environ=environment(settings))


def flower_program(app: str, python: Path, folder: Path, environ: Mapping[str, str]) -> Program:
    """A Flower that watches an app's workers."""
    (port,) = free_ports(1)
    command = [str(python), "-m", "celery", "-A", app, "flower", "--address=127.0.0.1", f"--port={port}"]
    return Program(
        command, log=folder / "flower.log", environ=environ, ready_url=f"http://127.0.0.1:{port}/healthcheck"
    )


class WebProgram(Program):
    """One uvicorn process, run as the API is deployed.

    Attributes:
        url: its address.
    """

    def __init__(self, factory: str, *, log: Path, environ: Mapping[str, str], ready_path: str) -> None:
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "uvicorn", "--factory", factory, "--no-access-log", "--port", str(port)]
        super().__init__(command, log=log, environ=environ, ready_url=f"{self.url}{ready_path}")


def api_program(settings: Settings, folder: Path) -> WebProgram:
    """The API."""
    return WebProgram(
        "api.app:create_app", log=folder / "api.log", environ=environment(settings), ready_path="/healthz"
    )


def bare_program(module: str, log: Path) -> WebProgram:
    """A service of a few lines, to stand beside it."""
    factory = f"benchmarks.apps.{module}:create_app"
    return WebProgram(factory, log=log, environ=dict(os.environ), ready_path="/openapi.json")


@contextmanager
def running_api(settings: Settings, folder: Path) -> Iterator[str]:
    """Run the API while the block runs; gives its address."""
    with running(api_program(settings, folder)) as program:
        yield program.url


def wait_for_model(client: Client, model: str, *, seconds: float = 60.0) -> None:
    """Wait until a worker has reported the model as ready."""

    def ready() -> bool:
        entry = read_catalogue(client.redis, client.settings).get(model)
        return entry is not None and entry.ready

    wait_for(ready, seconds=seconds, what=f"{model} is ready")


def succeeded(client: Client, model: str) -> int:
    """How many jobs of the model have succeeded so far: a counter of the ledger."""
    count: Any = client.redis.hget(f"{client.settings.key_prefix}stats:{model}", "succeeded")
    return int(count or 0)
