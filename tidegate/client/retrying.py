"""Whether and when a request is sent again: a pure decision over what went wrong and how long it has been so."""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.client.errors import ApiUnreachable, ClientError, ThrottledError, UnavailableError

#: The longest pause before the next try, where the API names none, doubles with every try between these two.
FIRST_PAUSE_SECONDS = 0.2
LONGEST_PAUSE_SECONDS = 10.0


@dataclass(frozen=True)
class RetryPolicy:
    """How long a request is tried again that the API did not take.

    Every request of this client may be repeated: a submission carries a key by which the API knows it again.

    Attributes:
        total_seconds: from the first failure; 0 gives up at once.
    """

    total_seconds: float = 30.0

    def pause_seconds(self, error: ClientError, *, tries: int, spent_seconds: float, chance: float) -> float | None:
        """How long to pause before the next try; None when there should be none.

        Args:
            error: what the last try met.
            tries: how many there were, from 1.
            spent_seconds: since the first one failed.
            chance: a random number from 0 to 1, so that clients that failed together do not come back together.

        Source: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ ("full jitter")
        """
        if not error.retryable or not isinstance(error, ApiUnreachable | UnavailableError | ThrottledError):
            return None
        longest: float = min(FIRST_PAUSE_SECONDS * 2.0 ** (tries - 1), LONGEST_PAUSE_SECONDS)
        # Never before the time that the API names; it spreads its clients by itself.
        pause = max(chance * longest, error.retry_after_seconds or 0.0)
        return pause if spent_seconds + pause <= self.total_seconds else None
