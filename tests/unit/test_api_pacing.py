"""When refused clients are told to come back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.pacing import JITTER, MAX_RETRY_SECONDS, queue_full_retry_seconds


@pytest.mark.parametrize(
    ("depth", "drain_rate", "seconds"),
    [
        (1000, 10.0, 10.0),
        (1000, 100.0, 1.0),
        (1000, 1000.0, 1.0),
        (100, 1.0, 10.0),
        (1000, 0.001, MAX_RETRY_SECONDS / (1 + JITTER)),
        (1000, 0.0, MAX_RETRY_SECONDS / (1 + JITTER)),
        (0, 0.0, MAX_RETRY_SECONDS / (1 + JITTER)),
    ],
)
def test_a_tenth_of_the_queue_must_be_gone(depth: int, drain_rate: float, seconds: float) -> None:
    """The wait follows the rate at which jobs end, and is bounded where none do."""
    assert queue_full_retry_seconds(depth, drain_rate, chance=0.0) == pytest.approx(seconds)


@given(st.integers(0, 10**7), st.floats(0, 1e6), st.floats(0, 1))
def test_a_wait_is_between_a_second_and_a_minute(depth: int, drain_rate: float, chance: float) -> None:
    """Nobody is sent away for longer, or called back at once."""
    assert 1.0 <= queue_full_retry_seconds(depth, drain_rate, chance=chance) <= MAX_RETRY_SECONDS + 1e-9


@given(st.integers(0, 10**7), st.floats(0, 1e6))
def test_clients_are_spread(depth: int, drain_rate: float) -> None:
    """Those who were refused together do not all come back together, at any rate."""
    first, last = (queue_full_retry_seconds(depth, drain_rate, chance=chance) for chance in (0.0, 1.0))
    assert last == pytest.approx(first * (1 + JITTER))
