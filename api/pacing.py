"""When a client should come back, in seconds: pure arithmetic over what is known at the time."""

from __future__ import annotations

#: How soon to ask again for a job that has not ended.
POLL_HINT_SECONDS = 1
#: No refused client is told to come back later than this: the rate may change any time.
MAX_RETRY_SECONDS = 60.0
#: Whoever comes back should find room, also when others come back with them: a part of the queue must be gone.
ROOM_FRACTION = 0.1
#: Waits are stretched by up to this part, so that clients refused together do not come back together.
JITTER = 0.25


def queue_full_retry_seconds(depth: int, drain_rate: float, *, chance: float) -> float:
    """When a full queue will have room again.

    Args:
        depth: how many jobs of the model wait.
        drain_rate: how many of them end a second; 0 where none did lately.
        chance: a random number from 0 to 1, which spreads the answers.

    Returns:
        Seconds, from 1 to :data:`MAX_RETRY_SECONDS`.
    """
    room_in = depth * ROOM_FRACTION / drain_rate if drain_rate > 0 else MAX_RETRY_SECONDS
    # The spread must survive the upper bound, or a standstill would send everybody back at the same moment.
    bounded = min(max(room_in, 1.0), MAX_RETRY_SECONDS / (1 + JITTER))
    return bounded * (1 + JITTER * chance)
