"""What a Redis must be set to so that accepted jobs are safe in it, and how to mend one that is not.

Workers and the API look once after they first reach Redis, and warn by name; nobody refuses to serve for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis
import redis.asyncio
import structlog
from redis.exceptions import ResponseError

log = structlog.get_logger(__name__)

SAFE_POLICY = "noeviction"


@dataclass(frozen=True)
class Advice:
    """One thing that is wrong with a Redis.

    Attributes:
        event: name of the log line.
        setting: of Redis, and what it is set to.
        danger: what may happen to jobs.
        mend: the command that puts it right.
    """

    event: str
    setting: str
    danger: str
    mend: str


def judge(info: Mapping[str, Any], snapshots: str | None) -> list[Advice]:
    """What is wrong, by what Redis says of itself.

    Args:
        info: of the sections ``memory`` and ``persistence``.
        snapshots: the setting ``save``; None where it may not be read.
    """
    found = []
    policy = info.get("maxmemory_policy", SAFE_POLICY)
    if policy != SAFE_POLICY:
        found.append(
            Advice(
                "redis.evicts",
                f"maxmemory-policy {policy}",
                "a full Redis throws accepted jobs away instead of refusing new ones",
                f"redis-cli CONFIG SET maxmemory-policy {SAFE_POLICY}",
            )
        )
    if not info.get("aof_enabled", 1):
        lost = "everything" if snapshots == "" else "what was accepted since the last snapshot"
        found.append(
            Advice(
                "redis.forgets",
                "appendonly no",
                f"a restart of Redis loses {lost}",
                "redis-cli CONFIG SET appendonly yes",
            )
        )
    return found


def warn(found: list[Advice]) -> None:
    """Log what is wrong, with the remedy."""
    for advice in found:
        log.warning(advice.event, setting=advice.setting, danger=advice.danger, mend=advice.mend)


def warn_about(client: redis.Redis) -> None:
    """Look at a Redis, and warn.

    Raises:
        RedisError: it does not answer.
    """
    info: Any = {**client.info("memory"), **client.info("persistence")}
    try:
        snapshots: Any = client.config_get("save")
    except ResponseError:
        # Hosted ones do not let anybody read their configuration.
        snapshots = {}
    warn(judge(info, snapshots.get("save")))


async def warn_about_async(client: redis.asyncio.Redis) -> None:
    """The same for the API."""
    info: Any = {**await client.info("memory"), **await client.info("persistence")}
    try:
        snapshots: Any = await client.config_get("save")
    except ResponseError:
        snapshots = {}
    warn(judge(info, snapshots.get("save")))
