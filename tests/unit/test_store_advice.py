"""What is said about a Redis in which accepted jobs are not safe."""

from __future__ import annotations

import pytest
import structlog.testing

from tidegate.store_advice import judge, warn

SAFE = {"maxmemory_policy": "noeviction", "aof_enabled": 1}


@pytest.mark.parametrize("snapshots", ["", "3600 1", None])
def test_safe_redis_is_not_talked_about(snapshots: str | None) -> None:
    """With an append-only file it does not matter whether there are snapshots."""
    assert judge(SAFE, snapshots) == []


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_eviction_is_told_by_name_with_its_remedy(policy: str) -> None:
    """The line names the policy and the command that mends it."""
    (advice,) = judge({**SAFE, "maxmemory_policy": policy}, "")
    assert advice.event == "redis.evicts"
    assert policy in advice.setting
    assert advice.mend == "redis-cli CONFIG SET maxmemory-policy noeviction"


@pytest.mark.parametrize(
    ("snapshots", "lost"),
    [("", "everything"), ("3600 1", "since the last snapshot"), (None, "since the last snapshot")],
)
def test_want_of_persistence_is_told_by_what_it_loses(snapshots: str | None, lost: str) -> None:
    """Without the append-only file a restart loses all, or what came after the last snapshot."""
    (advice,) = judge({**SAFE, "aof_enabled": 0}, snapshots)
    assert (advice.event, advice.setting) == ("redis.forgets", "appendonly no")
    assert lost in advice.danger
    assert advice.mend == "redis-cli CONFIG SET appendonly yes"


def test_advice_is_logged_as_a_warning() -> None:
    """One line for each thing that is wrong."""
    with structlog.testing.capture_logs() as lines:
        warn(judge({"maxmemory_policy": "allkeys-lru", "aof_enabled": 0}, ""))
    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("redis.evicts", "warning"), ("redis.forgets", "warning")
    ]  # fmt: skip
