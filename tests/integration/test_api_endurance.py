"""What thousands of submissions leave behind in an API process and its Redis; and what it says of an unsafe one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from benchmarks.http_client import HttpClient
from tests.integration.api_client import PNG, ApiServer, ready_model, report
from tests.integration.redis_server import RedisServer, running_redis
from tests.integration.workers import wait_until
from tidegate.settings import Settings, load_settings
from tidegate.store import connect

MODEL = "served"
WARM, SUBMISSIONS, AT_ONCE = 500, 5_000, 16
#: What a process may grow by, in bytes, and the clients of its Redis in number.
GROWTH_BYTES, GROWTH_CLIENTS = 30 * 1024**2, 5


@contextmanager
def api_on(server: RedisServer, folder: Path) -> Iterator[tuple[ApiServer, Settings]]:
    """An API process on a Redis."""
    settings = load_settings({}, redis_url=server.url, log_format="json")
    report(settings, ready_model(MODEL))
    api = ApiServer(settings, folder)
    try:
        yield api.start(), settings
    finally:
        api.stop()


def submit(url: str, count: int) -> None:
    """Submit over several connections, and never look at what becomes of it."""

    def submit_some(number: int) -> None:
        client = HttpClient(url)
        for _ in range(number, count, AT_ONCE):
            client.request("POST", "/v1/jobs", PNG, {"Content-Type": "image/png"})
        client.close()

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(submit_some, range(AT_ONCE)))


def subscriptions(client: redis.Redis) -> int:
    """How often anything was subscribed to since Redis was started."""
    stats: Any = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("subscribe", "psubscribe"))


@pytest.mark.timeout(120)
def test_thousands_of_jobs_that_nobody_asks_for_leave_no_subscription(
    redis_program: Path, tmp_path: Path, clean_environment: None
) -> None:
    """Nothing grows with the jobs but the queue: not channels, connections or memory, also when Redis is restarted."""
    with running_redis(tmp_path) as server, api_on(server, tmp_path) as (api, settings), connect(settings) as client:
        submit(api.url, WARM)
        memory, clients = api.resident_bytes(), len(client.client_list())
        submit(api.url, SUBMISSIONS)
        assert client.pubsub_channels("celery-task-meta-*") == []
        assert len(client.client_list()) <= clients + GROWTH_CLIENTS
        server.stop()
        server.start()
        wait_until(lambda: _is_ready(api), what="the API to be ready again")
        wait_until(lambda: client.pubsub_numsub(f"{settings.key_prefix}ended")[0][1] == 1, what="its subscription")
        assert subscriptions(client) <= 2
        assert len(client.client_list()) <= clients + GROWTH_CLIENTS
        assert client.zcard(f"{settings.key_prefix}queued:{MODEL}:normal") == WARM + SUBMISSIONS
        assert api.resident_bytes() - memory < GROWTH_BYTES


def _is_ready(api: ApiServer) -> bool:
    return httpx.get(f"{api.url}/readyz", timeout=5).is_success


def test_api_warns_of_a_redis_that_endangers_jobs(redis_program: Path, tmp_path: Path, clean_environment: None) -> None:
    """It names each setting and the command that mends it, once, and serves all the same."""
    with (
        running_redis(tmp_path, appendonly="no", maxmemory_policy="allkeys-lru") as server,
        api_on(server, tmp_path) as (api, _),
    ):
        wait_until(lambda: "redis.forgets" in api.log.read_text(), what="a warning")
        server.stop()
        server.start()
        wait_until(lambda: httpx.get(f"{api.url}/healthz", timeout=5).is_success, what="the API to serve")
        text = api.log.read_text()
    assert text.count("redis.evicts") == text.count("redis.forgets") == 1
    assert "CONFIG SET maxmemory-policy noeviction" in text
    assert "CONFIG SET appendonly yes" in text


def test_api_says_nothing_of_a_safe_redis(redis_program: Path, tmp_path: Path, clean_environment: None) -> None:
    """A Redis as it should be is not talked about."""
    with running_redis(tmp_path) as server, api_on(server, tmp_path) as (api, settings), connect(settings) as client:
        wait_until(lambda: "cmdstat_config" in _commands(client), what="the look at its settings")
        wait_until(lambda: _is_ready(api), what="the API to be ready")
        text = api.log.read_text()
    assert "redis." not in text


def _commands(client: redis.Redis) -> str:
    stats: Any = client.info("commandstats")
    return " ".join(stats)
