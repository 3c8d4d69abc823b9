"""The stack that is harmed: a real Redis, a real Triton, workers and an API as processes, each to be killed alone."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.chaos.hooks import HOST, TIMEOUT_SECONDS, Hooks
from tests.chaos.pictures import MODEL, add_witness
from tests.integration.api_client import ApiServer
from tests.integration.redis_server import RedisServer, running_redis
from tests.integration.triton_server import TritonServer, running_triton
from tests.integration.workers import Client, Worker, environment, quick_settings
from tidegate.outgoing import WEBHOOKS
from tidegate.settings import Settings
from tidegate.store import connect

#: Workers that killer images can harm.
WORKER_APP = "tests.integration.odd_app"
WORKERS = 2
CHILDREN = 2
SENDER_THREADS = 8


@dataclass
class Stack:
    """What runs."""

    settings: Settings
    redis: RedisServer
    triton: TritonServer
    workers: list[Worker]
    api: ApiServer
    outbound: Worker
    hooks: Hooks

    def load_model(self) -> None:
        """Have Triton serve the model."""
        httpx.post(f"{self.triton.http_url}/v2/repository/models/{MODEL}/load", timeout=30).raise_for_status()

    def unload_model(self) -> None:
        """Have Triton serve it no more."""
        httpx.post(f"{self.triton.http_url}/v2/repository/models/{MODEL}/unload", timeout=30).raise_for_status()

    def hasten_webhooks(self) -> None:
        """Have those that wait for another attempt make it now: after some failures a pause is longer than a run."""
        host, lines = f"{HOST}:{self.hooks.port}", f"{self.settings.key_prefix}{WEBHOOKS.lines}"
        with connect(self.settings) as client:
            waiting: Any = client.zrange(f"{lines}:wait:{host}", 0, -1)
            if waiting:
                client.zadd(f"{lines}:wait:{host}", dict.fromkeys(waiting, 1), xx=True)
                client.zadd(lines, {host: 1})


@contextlib.contextmanager
def running_stack(*, workers: int = WORKERS, seed: int = 1, **changes: Any) -> Iterator[Stack]:
    """Run it all while the block runs; logs lie in a temporary folder, whose last lines a failed start tells.

    Args:
        workers: how many, beside the one that sends webhooks.
        seed: which decides how the receiver of webhooks misbehaves.
        changes: settings that differ from this stack's own.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidegate-chaos-")))
        repository = folder / "models"
        add_witness(repository)
        (folder / "redis").mkdir()
        # Synced before it is answered, so that a kill loses nothing, whatever the disk does.
        redis = stack.enter_context(running_redis(folder / "redis", appendfsync="always"))
        triton = stack.enter_context(running_triton(repository))
        hooks = Hooks(seed)
        stack.callback(hooks.kill)
        hooks.start()
        # The lease, the sweep and the look at the models are the defaults: the bounds that are promised come from them.
        own = {
            "model_poll_seconds": 2.0,
            "sweep_seconds": 5.0,
            "log_format": "json",
            "default_model": MODEL,
            "api_drain_seconds": 1.0,
            "webhook_secret": hooks.secret,
            "webhook_timeout_seconds": TIMEOUT_SECONDS,
            "outbound_allow": HOST,
            "outbound_ports": str(hooks.port),
        }
        settings = quick_settings(redis.url, triton.grpc_url, **{**own, **changes})
        running = [_worker(settings, folder, str(number), "-c", str(CHILDREN)) for number in range(1, workers + 1)]
        sends = ("--queues", "webhooks", "--pool", "threads", "-c", str(SENDER_THREADS))
        outbound = _worker(settings, folder, "outbound", *sends)
        for worker in [*running, outbound]:
            stack.callback(worker.stop)
            worker.start()
        api = ApiServer(settings, folder)
        stack.callback(api.stop)
        api.start()
        client = Client(settings)
        try:
            client.wait_for_model(MODEL)
        finally:
            client.close()
        yield Stack(settings, redis, triton, running, api, outbound, hooks)


def _worker(settings: Settings, folder: Path, name: str, *arguments: str) -> Worker:
    return Worker(
        f"chaos-{name}@test",
        arguments,
        app=WORKER_APP,
        log=folder / f"worker-{name}.log",
        environ=environment(settings),
    )
