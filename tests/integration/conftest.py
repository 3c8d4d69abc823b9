"""What integration tests share: one real Redis for all of them, and in it a key space of its own for each."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.ledger_probe import LedgerProbe
from tests.integration.redis_server import RedisServer, running_redis
from tidegate.ledger import Ledger
from tidegate.local import MissingPart
from tidegate.local.redis import find_redis_server
from tidegate.settings import PREFIX, Settings, load_settings
from tidegate.store import connect


@pytest.fixture(scope="session")
def redis_program() -> Path:
    """The server program. Where there is none: a skip at home, and in CI a failure."""
    try:
        return find_redis_server()
    except MissingPart as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def redis_server(redis_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """The Redis of all tests that leave it as they found it."""
    with running_redis(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
def own_redis(redis_program: Path, tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis of the test's own, to be filled, frozen or killed.

    It syncs before it answers: with ``everysec`` it puts even the write off while a slow disk syncs, and a kill
    would lose what it had answered.
    """
    with running_redis(tmp_path, appendfsync="always") as server:
        yield server


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting comes from the shell that runs the tests."""
    for variable in [name for name in os.environ if name.upper().startswith(PREFIX)]:
        monkeypatch.delenv(variable)


@pytest.fixture
def settings(redis_server: RedisServer, clean_environment: None) -> Settings:
    """The defaults, with keys that no other test uses."""
    return load_settings({}, redis_url=redis_server.url, key_prefix=f"test-{uuid.uuid4().hex}:")


@pytest.fixture
def redis_client(settings: Settings) -> Iterator[redis.Redis]:
    """A client as workers have it; at the end the test's keys are gone."""
    with connect(settings) as client:
        yield client
        if left := client.keys(f"{settings.key_prefix}*"):
            client.delete(*left)


@pytest.fixture
def ledger(redis_client: redis.Redis, settings: Settings) -> Ledger:
    """A worker's ledger."""
    return Ledger(redis_client, settings)


@pytest.fixture
def probe(ledger: Ledger) -> LedgerProbe:
    """What lies under that ledger."""
    return LedgerProbe(ledger)
