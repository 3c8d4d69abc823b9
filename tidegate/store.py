"""The connection to Redis, and what its errors mean to us.

One place decides how long anyone waits for Redis: no command, in any process, waits longer than
``TIDEGATE_REDIS_TIMEOUT_SECONDS``, and none is repeated after a time-out.
"""

from __future__ import annotations

import re
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import (
    ClusterDownError,
    DataError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    PubSubError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError
from redis.retry import Retry

from tidegate.errors import InternalError, StoreUnavailable, TidegateError
from tidegate.settings import Settings

#: Redis's own refusals that pass by themselves or by an operator's hand, and are no bug of ours, where redis-py
#: has a class for them (it then takes their first word off the text),
PASSING_ERRORS = (
    ClusterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    TryAgainError,
)
#: and where it has none, or Redis 6.2 reports them out of a script: ``ERR Error running script ...: 54: -OOM ...``.
_PASSING_WORDS = re.compile(r"(?:^|: -)(BUSY|MISCONF|NOREPLICAS|OOM|READONLY) ")


def _options(settings: Settings) -> dict[str, Any]:
    return {
        "socket_timeout": settings.redis_timeout_seconds,
        "socket_connect_timeout": settings.redis_timeout_seconds,
        # After a restart of Redis each pooled connection is found broken once; the scripts may be repeated.
        "retry_on_error": [RedisConnectionError],
        "health_check_interval": 0,
        "protocol": 2,
    }


def connect(settings: Settings, *, max_connections: int = 4) -> redis.Redis:
    """A client for a worker process. Nothing is sent before the first command."""
    return redis.Redis.from_url(
        settings.redis_url,
        max_connections=max_connections,
        retry=Retry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        **_options(settings),
    )


def connect_async(settings: Settings, *, max_connections: int = 64) -> redis.asyncio.Redis:
    """A client for the API. A caller beyond ``max_connections`` waits its turn, no longer than the time-out."""
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.redis_url,
        max_connections=max_connections,
        timeout=settings.redis_timeout_seconds,
        retry=AsyncRetry(NoBackoff(), 1, supported_errors=(RedisConnectionError,)),
        **_options(settings),
    )
    return redis.asyncio.Redis.from_pool(pool)


def translate(error: RedisError) -> TidegateError:
    """What an error of redis-py means: an outage that passes, or a bug of ours."""
    if isinstance(error, RedisTimeoutError):
        return StoreUnavailable("Redis did not answer in time.", retry_after_seconds=2)
    passing = _PASSING_WORDS.search(str(error))
    if isinstance(error, OutOfMemoryError) or (passing and passing[1] == "OOM"):
        return StoreUnavailable("Redis is full.", retry_after_seconds=10)
    refused = isinstance(error, ResponseError) and not passing and not isinstance(error, PASSING_ERRORS)
    if refused or isinstance(error, DataError | PubSubError):
        return InternalError("Redis refused a command of ours.")
    return StoreUnavailable("Redis cannot be reached or refuses writes.", retry_after_seconds=2)
