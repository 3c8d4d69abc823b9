"""Whether a request is sent again, and when."""

from __future__ import annotations

import pytest

from tidegate.client import ApiUnreachable, ClientError, ImageError, InferenceError, ServerError, UnavailableError
from tidegate.client.errors import ThrottledError
from tidegate.client.retrying import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, RetryPolicy


def pause(error: ClientError, *, tries: int = 1, spent: float = 0.0, chance: float = 1.0) -> float | None:
    """What a policy of 30 s decides."""
    return RetryPolicy(30.0).pause_seconds(error, tries=tries, spent_seconds=spent, chance=chance)


def told_to_wait(seconds: float) -> UnavailableError:
    """An outage with a time to come back."""
    error = UnavailableError("full", code="queue_full")
    error.retry_after_seconds = seconds
    return error


@pytest.mark.parametrize("error", [ApiUnreachable("down"), UnavailableError("full"), ThrottledError("too much")])
def test_outage_is_tried_again(error: ClientError) -> None:
    """What passes by itself is worth another try."""
    assert pause(error) is not None


@pytest.mark.parametrize(
    "error",
    [
        ImageError("broken"),
        ServerError("bug"),
        ApiUnreachable("no such protocol", retryable=False),
        InferenceError("the job failed", retryable=True),
    ],
)
def test_refusal_is_not_tried_again(error: ClientError) -> None:
    """What stays as it is is told at once; and so is a job's failure, whose repetition would be another job."""
    assert pause(error) is None


def test_pauses_double_up_to_a_limit() -> None:
    """An outage of a moment costs a moment, and one of minutes no storm of requests."""
    pauses = [pause(ApiUnreachable("down"), tries=tries) for tries in range(1, 9)]
    assert pauses == [min(FIRST_PAUSE_SECONDS * 2**n, LONGEST_PAUSE_SECONDS) for n in range(8)]


def test_pauses_are_spread_by_chance() -> None:
    """Clients that failed together do not come back together."""
    assert pause(ApiUnreachable("down"), tries=3, chance=0.0) == 0.0
    assert pause(ApiUnreachable("down"), tries=3, chance=0.5) == FIRST_PAUSE_SECONDS * 2


def test_retry_after_is_never_undercut() -> None:
    """The API knows best when it is worth a try; only a longer pause of our own comes later."""
    assert pause(told_to_wait(7.0), chance=0.0) == 7.0
    assert pause(told_to_wait(1.0), tries=9) == LONGEST_PAUSE_SECONDS


def test_tries_end_with_the_time_for_them() -> None:
    """Whoever is told to come back after the time is over is told of the error now."""
    assert pause(told_to_wait(20.0), spent=10.0) == 20.0
    assert pause(told_to_wait(20.1), spent=10.0) is None
    assert RetryPolicy(0).pause_seconds(ApiUnreachable("down"), tries=1, spent_seconds=0.0, chance=0.5) is None
