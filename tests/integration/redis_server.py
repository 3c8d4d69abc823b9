"""A real Redis for a test: ``with running_redis(tmp_path) as redis: ...``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tests.integration.server_process import ServerProcess, free_ports
from tidegate.local.redis import find_redis_server, redis_command


class RedisServer(ServerProcess):
    """A Redis on loopback, with an append-only file.

    Attributes:
        port: TCP port.
        url: for redis-py and Celery, database 0.
    """

    def __init__(self, data_dir: Path, *, port: int, options: dict[str, str]) -> None:
        extra = [word for name, value in options.items() for word in (f"--{name}", value)]
        command = redis_command(server=find_redis_server(), port=port, data_dir=data_dir)
        super().__init__([*command, *extra], log=data_dir / "redis.log")
        self.port = port
        self.url = f"redis://127.0.0.1:{port}/0"

    def is_ready(self) -> bool:
        """Whether it answers, and has read its append-only file."""
        try:
            with redis.Redis.from_url(self.url, socket_timeout=1.0) as client:
                return bool(client.ping())
        except (redis.ConnectionError, redis.TimeoutError):
            return False


@contextmanager
def running_redis(data_dir: Path, **options: str) -> Iterator[RedisServer]:
    """Run a Redis while the block runs; its port stays the same when the block starts it again.

    Args:
        data_dir: an existing folder; a second server over the same one finds the data of the first.
        options: settings that are added or win, with ``_`` for ``-``: ``appendfsync="always"``.

    Raises:
        RuntimeError: it does not start; with its last log lines.
    """
    settings = {name.replace("_", "-"): value for name, value in options.items()}
    server = RedisServer(data_dir, port=free_ports(1)[0], options=settings)
    try:
        yield server.start()
    finally:
        server.stop()
