"""What becomes of a job whose call failed: a table over errors, attempts and time."""

from __future__ import annotations

import pytest

from tidegate.errors import (
    InferenceError,
    InferenceTimeout,
    ModelFailed,
    ModelNotAvailable,
    ModelOutputInvalid,
    ModelOverloaded,
    ModelRejectedInput,
    ModelUnreachable,
)
from worker.retry import FIRST_PAUSE_MS, LEAST_PAUSE_MS, LONGEST_PAUSE_MS, GiveUp, TryAgain, decide, pause_ms

OUTAGES: list[type[InferenceError]] = [ModelUnreachable, ModelNotAvailable]
FAULTS: list[type[InferenceError]] = [InferenceTimeout, ModelFailed]
FINAL: list[type[InferenceError]] = [ModelRejectedInput, ModelOutputInvalid]


def decided(
    error: type[InferenceError],
    *,
    attempts: int = 1,
    pauses: int = 0,
    remaining_ms: int | None = None,
    version_wait_ms: int | None = None,
    in_company: bool = False,
) -> TryAgain | GiveUp:
    """The decision for an ordinary job, with a jitter of a half."""
    return decide(
        error("It failed."),
        attempts=attempts,
        max_attempts=3,
        pauses=pauses,
        remaining_ms=remaining_ms,
        version_wait_ms=version_wait_ms,
        in_company=in_company,
        jitter=lambda: 0.5,
    )


@pytest.mark.parametrize("error", OUTAGES)
def test_outage_is_waited_out_whatever_it_takes(error: type[InferenceError]) -> None:
    """No attempt is spent, no count of pauses is too many, and the deadline is the sweeper's to watch."""
    assert decided(error, attempts=99, pauses=99, remaining_ms=1) == TryAgain(LONGEST_PAUSE_MS // 2, refund=True)


def test_overload_is_waited_out_until_the_deadline() -> None:
    """It costs no attempt; a pause that would end behind the deadline is not begun."""
    assert decided(ModelOverloaded, attempts=99) == TryAgain(FIRST_PAUSE_MS // 2, refund=True)
    assert decided(ModelOverloaded, remaining_ms=FIRST_PAUSE_MS // 2 + 1) == TryAgain(250, refund=True)
    assert decided(ModelOverloaded, remaining_ms=FIRST_PAUSE_MS // 2) == GiveUp()


@pytest.mark.parametrize("error", FAULTS)
def test_fault_of_the_model_costs_an_attempt_and_the_last_one_ends(error: type[InferenceError]) -> None:
    """Three runs, the pause between them growing; none that would end behind the deadline."""
    assert decided(error, attempts=1) == TryAgain(FIRST_PAUSE_MS // 2, refund=False)
    assert decided(error, attempts=2, pauses=1) == TryAgain(FIRST_PAUSE_MS, refund=False)
    assert decided(error, attempts=3, pauses=2) == GiveUp()
    assert decided(error, attempts=1, remaining_ms=100) == GiveUp()


@pytest.mark.parametrize("error", FINAL)
def test_refusal_is_final(error: type[InferenceError]) -> None:
    """The same input would be refused again."""
    assert decided(error) == GiveUp()


def test_missing_version_is_waited_for_within_its_window() -> None:
    """A job that names a version waits for it, looks a last time when the window ends, and then gives up."""
    assert decided(ModelNotAvailable, version_wait_ms=20_000) == TryAgain(FIRST_PAUSE_MS // 2, refund=True)
    assert decided(ModelNotAvailable, version_wait_ms=100) == TryAgain(100, refund=True)
    assert decided(ModelNotAvailable, version_wait_ms=0) == GiveUp()
    assert decided(ModelNotAvailable, version_wait_ms=-5) == GiveUp()


@pytest.mark.parametrize("error", [ModelUnreachable, ModelOverloaded])
def test_window_of_a_version_is_for_its_absence_alone(error: type[InferenceError]) -> None:
    """A server that is gone or busy says nothing of the version."""
    assert isinstance(decided(error, version_wait_ms=-5), TryAgain)


def test_pauses_grow_to_a_limit_and_never_vanish() -> None:
    """They double up to the longest; full jitter reaches down to the least and not to nothing."""
    assert [pause_ms(count, lambda: 1.0) for count in range(6)] == [500, 1000, 2000, 4000, 5000, 5000]
    assert pause_ms(1000, lambda: 1.0) == LONGEST_PAUSE_MS
    assert pause_ms(3, lambda: 0.0) == LEAST_PAUSE_MS


@pytest.mark.parametrize("error", FAULTS)
def test_fault_of_a_batch_makes_each_of_its_jobs_run_alone(error: type[InferenceError]) -> None:
    """Any of them may be the cause, so none takes the others along again; a job that was alone gains nothing by it."""
    assert decided(error, in_company=True) == TryAgain(FIRST_PAUSE_MS // 2, refund=False, alone=True)
    assert decided(error, in_company=False) == TryAgain(FIRST_PAUSE_MS // 2, refund=False, alone=False)


@pytest.mark.parametrize("error", [*OUTAGES, ModelOverloaded])
def test_outage_and_overload_accuse_no_job(error: type[InferenceError]) -> None:
    """They have their cause in the server, so batches stay batches."""
    decision = decided(error, in_company=True)
    assert isinstance(decision, TryAgain)
    assert not decision.alone
