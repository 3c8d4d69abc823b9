"""A stub Triton, a Redis of its own and a client, as one fixture; a test starts the workers that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from celery import Celery

from tests.integration.redis_server import RedisServer, running_redis
from tests.integration.stub_triton import MODEL, StubTriton, running_stub
from tests.integration.workers import Client, Worker, quick_settings, running_worker
from tidegate.settings import Settings
from tidegate.tickets import celery_settings


@dataclass
class Rig:
    """What a worker test works with."""

    redis: RedisServer
    stub: StubTriton
    settings: Settings
    client: Client
    tmp_path: Path

    def worker(
        self, name: str = "w1", *, model: str = MODEL, ready: bool = True, **options: Any
    ) -> AbstractContextManager[Worker]:
        """A worker on this rig, that has reported the model as ready, or not, once the block is entered."""
        return self._consuming(name, model, ready=ready, **options)

    @contextmanager
    def _consuming(self, name: str, model: str, *, ready: bool, **options: Any) -> Iterator[Worker]:
        with running_worker(self.settings, self.tmp_path, name=name, **options) as worker:
            self.client.wait_for_model(model, ready=ready)
            yield worker

    @contextmanager
    def celery(self) -> Iterator[Celery]:
        """A Celery app of an operator: control, inspect, events."""
        app = Celery("operator", set_as_current=False)
        app.config_from_object(celery_settings(self.settings))
        try:
            yield app
        finally:
            app.close()


@contextmanager
def running_rig(
    tmp_path: Path, *, max_batch: int = 8, stub: Mapping[str, Any] | None = None, **settings: Any
) -> Iterator[Rig]:
    """Set a rig up while the block runs; ``stub`` has more fields of the stub, the rest are settings."""
    with running_redis(tmp_path) as redis, running_stub(max_batch=max_batch, **(stub or {})) as served:
        chosen = quick_settings(redis.url, served.url, **settings)
        client = Client(chosen)
        try:
            yield Rig(redis, served, chosen, client, tmp_path)
        finally:
            client.close()
