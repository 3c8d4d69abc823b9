"""What Redis's errors mean to us."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis.exceptions
from redis.exceptions import (
    AskError,
    DataError,
    MovedError,
    PubSubError,
    RedisError,
    ResponseError,
)

from tidegate.errors import InternalError, StoreUnavailable
from tidegate.store import translate

#: What Redis itself says to a command that it has understood, but will not carry out now.
PASSING = {
    redis.exceptions.OutOfMemoryError,
    redis.exceptions.ReadOnlyError,
    redis.exceptions.NoPermissionError,
    redis.exceptions.NoScriptError,
    redis.exceptions.TryAgainError,
    redis.exceptions.ClusterDownError,
    redis.exceptions.MasterDownError,
}
#: What our own code must never cause.
OURS = {DataError, PubSubError}


def descendants(cls: type[RedisError]) -> Iterator[type[RedisError]]:
    """The classes below, at any depth."""
    for child in cls.__subclasses__():
        yield child
        yield from descendants(child)


def raised(cls: type[RedisError]) -> RedisError:
    """An instance, as redis-py makes it out of an answer."""
    return cls("1234 127.0.0.1:6380") if issubclass(cls, AskError) else cls("as Redis told it")


@pytest.mark.parametrize("cls", list(dict.fromkeys([RedisError, *descendants(RedisError)])))
def test_every_error_of_redis_py_is_an_outage_or_a_bug_of_ours(cls: type[RedisError]) -> None:
    """Refusals of a command and misuse of the client are bugs; all else is an outage, with a time to come back."""
    bug = cls in OURS or (issubclass(cls, ResponseError) and cls not in PASSING)

    error = translate(raised(cls))

    if bug:
        assert type(error) is InternalError
    else:
        assert type(error) is StoreUnavailable
        assert error.retry_after_seconds


@pytest.mark.parametrize(
    "text",
    [
        # As Redis 7 says it, where redis-py does not know the word.
        "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.",
        "NOREPLICAS Not enough good replicas to write.",
        # As Redis 6.2 says it when the command stands in a script.
        "Error running script (call to f_5c): @user_script:54: @user_script: 54: -READONLY You can't write",
        "Error running script (call to f_5c): @user_script:54: @user_script: 54: -OOM command not allowed",
        "Error running script (call to f_5c): @user_script:54: @user_script: 54: -MISCONF Redis is configured",
        "Error running script (call to f_5c): @user_script:54: @user_script: 54: -NOREPLICAS Not enough good replicas",
    ],
)
def test_refusal_that_passes_is_told_by_its_first_word(text: str) -> None:
    """Refusals for which redis-py has no class, and those that come wrapped out of a script, are outages too."""
    assert type(translate(ResponseError(text))) is StoreUnavailable


@pytest.mark.parametrize(
    "text",
    [
        "Error running script (call to f_5c): @user_script:54: user_script:54: attempt to index local 'job'",
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "unknown command 'FLY', with args beginning with: 'READONLY'",
        "BUSYGROUP Consumer Group name already exists",
    ],
)
def test_broken_script_is_a_bug_of_ours(text: str) -> None:
    """What no operator and no waiting will mend is not called an outage."""
    assert type(translate(ResponseError(text))) is InternalError


def test_full_redis_asks_for_more_patience_than_a_silent_one() -> None:
    """Memory frees itself when jobs end, which takes longer than a restart; both spellings are known."""
    full = [
        translate(redis.exceptions.OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")),
        translate(ResponseError("Error running script (call to f_5c): @user_script:1: @user_script: 1: -OOM command")),
    ]
    silent = translate(redis.exceptions.TimeoutError("Timeout reading from socket"))

    assert {str(error) for error in full} == {"Redis is full."}
    assert all((error.retry_after_seconds or 0) > (silent.retry_after_seconds or 0) for error in full)


@pytest.mark.parametrize("cls", [RedisError, ResponseError, redis.exceptions.ConnectionError, MovedError])
def test_translated_error_repeats_nothing_that_redis_said(cls: type[RedisError]) -> None:
    """Redis quotes arguments in its refusals; clients see a sentence of ours."""
    secret = "1234 10.0.0.7:6379"

    assert "10.0.0.7" not in str(translate(cls(secret)))
