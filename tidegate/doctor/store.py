"""Redis: whether it answers, is new enough, keeps what it is given, and agrees on the time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import redis
from redis.exceptions import RedisError, ResponseError

from tidegate.doctor.finding import Finding, fault, fine, warning
from tidegate.settings import Settings
from tidegate.store import connect

OLDEST_VERSION = (6, 2)
#: From this share of its limit on, it is told that Redis fills up.
FULL_SHARE = 0.8
#: Receivers of webhooks take a signature's time when it is within five minutes of theirs; a machine whose clock is
#: looked after stays far below this.
SKEW_SECONDS = 1.0

#: Images of some seconds: an append-only file that is rewritten from much less on always is, under load.
LEAST_REWRITE_BYTES = 512 * 2**20

_KEEP = "Redis should keep what it is given: redis-cli CONFIG SET appendonly yes, and `appendonly yes` in redis.conf."
_EVICT = (
    "Redis must refuse writes when it is full, not drop jobs: redis-cli CONFIG SET maxmemory-policy noeviction, and "
    "`maxmemory-policy noeviction` in redis.conf."
)
_REWRITE_LATER = (
    "While images come in, Redis rewrites it all the time: redis-cli CONFIG SET auto-aof-rewrite-min-size 1gb, and "
    "`auto-aof-rewrite-min-size 1gb` in redis.conf."
)


def look_at_store(settings: Settings) -> Iterator[Finding]:
    """All that Redis tells of itself."""
    try:
        with connect(settings, max_connections=1) as client:
            facts: Any = client.info()
            skew_seconds = _skew_seconds(client)
            rewrite_bytes = _rewrite_bytes(client) if facts.get("aof_enabled") else None
    except RedisError as error:
        advice = "Start Redis, or set TIDEGATE_REDIS_URL to where it is."
        yield fault("redis", f"{_address(settings)} does not answer: {error}", advice)
        return
    yield from judge_store(facts)
    if rewrite_bytes is not None:
        yield judge_rewrites(rewrite_bytes)
    yield judge_clock(skew_seconds)


def judge_store(facts: Mapping[str, Any]) -> Iterator[Finding]:
    """What the facts that ``INFO`` gives mean for Tidegate.

    Source: https://redis.io/docs/latest/commands/info/
    """
    yield _version(facts)
    yield _role(facts)
    yield _persistence(facts)
    yield _eviction(facts)
    yield _memory(facts)


def judge_rewrites(least_bytes: int) -> Finding:
    """What it means that Redis rewrites its append-only file when that has grown and has so many bytes."""
    told = f"rewritten from {least_bytes / 2**20:.0f} MiB on"
    if least_bytes >= LEAST_REWRITE_BYTES:
        return fine("append-only file", told)
    return warning("append-only file", told, _REWRITE_LATER)


def judge_clock(skew_seconds: float) -> Finding:
    """What it means that Redis's clock is that much ahead of ours."""
    told = f"Redis's is {abs(skew_seconds):.3f} s {'ahead of' if skew_seconds > 0 else 'behind'} this machine's"
    if abs(skew_seconds) <= SKEW_SECONDS:
        return fine("clock", told)
    return warning("clock", told, "Have both machines keep the time by NTP (timedatectl set-ntp true).")


def _version(facts: Mapping[str, Any]) -> Finding:
    name = "Valkey" if "valkey_version" in facts else "Redis"
    version = str(facts.get("valkey_version") or facts["redis_version"])
    numbers = tuple(int(number) for number in version.split(".")[:2])
    if numbers >= OLDEST_VERSION:
        return fine("redis", f"{name} {version}")
    return fault("redis", f"{name} {version}", "Tidegate needs Redis or Valkey 6.2 or newer.")


def _role(facts: Mapping[str, Any]) -> Finding:
    role, mode = facts.get("role", "master"), facts.get("redis_mode", "standalone")
    if mode == "cluster":
        return fault("redis role", "a cluster", "Tidegate needs one Redis that has all its keys, not a cluster.")
    if role != "master":
        return fault("redis role", f"a {role}", "A replica takes no writes: set TIDEGATE_REDIS_URL to the primary.")
    return fine("redis role", "takes writes")


def _persistence(facts: Mapping[str, Any]) -> Finding:
    if facts.get("aof_last_write_status", "ok") != "ok":
        return fault("persistence", "the append-only file cannot be written", "See Redis's log: its disk may be full.")
    if facts.get("aof_enabled"):
        return fine("persistence", "append-only file")
    return warning("persistence", "no append-only file: a restart of Redis forgets jobs", _KEEP)


def _eviction(facts: Mapping[str, Any]) -> Finding:
    policy = str(facts.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return fine("eviction policy", policy)
    return fault("eviction policy", policy, _EVICT)


def _memory(facts: Mapping[str, Any]) -> Finding:
    used, limit = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    told = f"{used / 2**20:.0f} MiB of {f'{limit / 2**20:.0f} MiB' if limit else 'no limit'}"
    if limit and used > FULL_SHARE * limit:
        advice = "Give Redis more memory (maxmemory), or lower TIDEGATE_MAX_QUEUED_BYTES: when full, it takes no jobs."
        return warning("redis memory", told, advice)
    return fine("redis memory", told)


def _rewrite_bytes(client: redis.Redis) -> int | None:
    """None where it does not do so by itself, or lets nobody read its configuration, as hosted ones do not."""
    try:
        found: Any = client.config_get("auto-aof-rewrite-*")
    except ResponseError:
        return None
    if int(found.get("auto-aof-rewrite-percentage", 0)) == 0:
        return None
    return int(found["auto-aof-rewrite-min-size"])


def _skew_seconds(client: redis.Redis) -> float:
    before = time.time()
    answer: Any = client.time()
    after = time.time()
    seconds, microseconds = answer
    return float(seconds + microseconds / 1e6 - (before + after) / 2)


def _address(settings: Settings) -> str:
    """Where Redis is, without its password."""
    scheme, _, rest = settings.redis_url.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"
