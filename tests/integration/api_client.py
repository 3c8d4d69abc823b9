"""The API for a test: in this process behind an httpx client, or as a server of its own."""

from __future__ import annotations

import asyncio
import base64
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis
from fastapi import FastAPI

from api.app import create_app
from api.services import Services
from tests.integration.ledger_probe import success
from tests.integration.server_process import ServerProcess, free_ports
from tests.integration.workers import environment
from tidegate.catalogue import ModelEntry, ModelState, write_catalogue
from tidegate.jobs import State
from tidegate.ledger import Ledger
from tidegate.settings import Settings
from tidegate.store import connect

#: One transparent pixel.
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PNG_BASE64 = base64.b64encode(PNG).decode()
CLASSES = 10


def ready_model(name: str, **fields: Any) -> ModelEntry:
    """A model as a worker reports one that it can serve."""
    facts = {"state": ModelState.READY, "versions": ("1",), "classes": CLASSES, "batch_limit": 8, "input": "uint8"}
    return ModelEntry(**{"name": name, **facts, **fields})


def report(settings: Settings, *entries: ModelEntry) -> None:
    """Report models, as a worker does."""
    with connect(settings) as client:
        write_catalogue(client, settings, entries)


def run_job(ledger: Ledger, job_id: str) -> None:
    """Run a job to its success, as a worker does."""
    claimed, _ = ledger.run(ledger.commands.claim("worker", [job_id]))
    assert [job.id for job in claimed] == [job_id]
    assert ledger.run(ledger.commands.complete("worker", [success(job_id)])) == [State.SUCCEEDED]


async def eventually(ask: Callable[[], Any], *, within_seconds: float = 5.0) -> Any:
    """Ask until the answer is a good one, and give it; fail when none comes in time."""
    deadline = time.monotonic() + within_seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, "it did not come true in time"
        await asyncio.sleep(0.01)
    return answer


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the API in this process; a crash of the API is a crash of the test."""
    app = create_app(settings)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api", timeout=30) as client,
    ):
        yield client


def app_of(client: httpx.AsyncClient) -> FastAPI:
    """The application behind a client that :func:`serving` made."""
    transport = client._transport
    assert isinstance(transport, httpx.ASGITransport)
    assert isinstance(transport.app, FastAPI)
    return transport.app


def services_of(client: httpx.AsyncClient) -> Services:
    """What works behind a client that :func:`serving` made."""
    services: Services = app_of(client).state.services
    return services


class ApiServer(ServerProcess):
    """The API as it is deployed: a process with uvicorn, in which warnings are errors.

    Attributes:
        url: where it serves.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        (port,) = free_ports(1)
        command = [sys.executable, "-W", "error", "-m", "uvicorn", "--factory", "api.app:create_app"]
        command += ["--no-access-log", "--port", str(port)]
        super().__init__(command, log=folder / "api.log", environ=environment(settings))
        self.url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        """Whether it answers."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=1).is_success
        except httpx.HTTPError:
            return False

    def resident_bytes(self) -> int:
        """How much memory it holds."""
        return int(psutil.Process(self.pid).memory_info().rss)

    def cpu_seconds(self) -> float:
        """How much processor time it has used."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def open_files(self) -> int:
        """How many descriptors it holds."""
        return int(psutil.Process(self.pid).num_fds())


def ids_in_queue(client: redis.Redis, settings: Settings, model: str) -> list[str]:
    """The jobs of the model that wait, in the order in which they came."""
    members: Any = client.zrange(f"{settings.key_prefix}queued:{model}:normal", 0, -1)
    return [member.decode() for member in members]
