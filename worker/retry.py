"""What to do after a failed call to Triton: a pure decision over the error and the job."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tidegate.errors import (
    InferenceError,
    InferenceTimeout,
    ModelFailed,
    ModelNotAvailable,
    ModelOverloaded,
    ModelUnreachable,
)

#: The pause after the first failure; it doubles with each further one, and its jitter is full.
#: Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 5_000
#: The least pause, so that full jitter never means "at once".
LEAST_PAUSE_MS = 50


@dataclass(frozen=True)
class TryAgain:
    """Put the job off.

    Attributes:
        refund: the run does not count as an attempt: the job had no part in the failure.
        alone: it runs without company from now on: of a batch that failed as a whole, one job may be the cause.
    """

    delay_ms: int
    refund: bool
    alone: bool = False


@dataclass(frozen=True)
class GiveUp:
    """End the job with the error."""


def pause_ms(pauses: int, jitter: Callable[[], float] = random.random) -> int:
    """How long to wait after so many pauses: exponential, with full jitter, at most ``LONGEST_PAUSE_MS``."""
    ceiling: int = min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS << min(pauses, 16))
    return max(LEAST_PAUSE_MS, round(ceiling * jitter()))


def decide(
    error: InferenceError,
    *,
    attempts: int,
    max_attempts: int,
    pauses: int,
    remaining_ms: int | None,
    version_wait_ms: int | None,
    in_company: bool,
    jitter: Callable[[], float] = random.random,
) -> TryAgain | GiveUp:
    """Whether a job whose call failed is tried again, and when.

    Args:
        error: what the call ended with.
        attempts: runs of the job so far, this one included.
        max_attempts: how many may end in a failure of the model.
        pauses: how often the job was put off before.
        remaining_ms: until the job's deadline; None when it has none.
        version_wait_ms: how much longer the version that the job names may be missed; None when it names none.
        in_company: whether other jobs were in the batch.
        jitter: gives a number in [0, 1).
    """
    delay_ms = pause_ms(pauses, jitter)
    out_of_time = remaining_ms is not None and delay_ms >= remaining_ms
    if isinstance(error, ModelNotAvailable) and version_wait_ms is not None:
        # It may be on its way; or the job names one that will never come.
        return TryAgain(min(delay_ms, version_wait_ms), refund=True) if version_wait_ms > 0 else GiveUp()
    if isinstance(error, ModelUnreachable | ModelNotAvailable):
        # An outage: the sweeper ends the job at its deadline, and until then it waits.
        return TryAgain(delay_ms, refund=True)
    if isinstance(error, ModelOverloaded):
        return GiveUp() if out_of_time else TryAgain(delay_ms, refund=True)
    if isinstance(error, InferenceTimeout | ModelFailed):
        if out_of_time or attempts >= max_attempts:
            return GiveUp()
        return TryAgain(delay_ms, refund=False, alone=in_company)
    return GiveUp()
