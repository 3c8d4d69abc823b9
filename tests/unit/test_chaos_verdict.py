"""The verdict on a run of chaos sees each way in which a promise can be broken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.clients import Promise
from tests.chaos.hooks import Heard
from tests.chaos.verdict import Verdict, judge

JOB: dict[str, Any] = {
    "id": "job-1",
    "status": "succeeded",
    "finished_at": "2026-11-29T12:00:00Z",
    "result": {"predictions": [{"class_id": index, "score": float(index)} for index in range(3)]},
    "error": None,
}
#: Colours 0, 1 and 2, as :func:`tests.chaos.pictures.number_in` reads them.
NUMBER = 0x000102
TOLD = Heard("job-1-succeeded", {"type": "job.succeeded", "data": JOB}, taken=True)


def promise(**fields: Any) -> Promise:
    """A job that ended well, and whose end is to be told."""
    made = Promise("job-1", "plain", NUMBER, webhook=True)
    made.note(JOB)
    return replace(made, **fields)


def told(**fields: Any) -> Heard:
    """A webhook that tells of the job something else."""
    return replace(TOLD, event={"type": "job.succeeded", "data": JOB | fields})


def counts(verdict: Verdict) -> tuple[int, ...]:
    """Lost, ended twice, answered wrong, stuck; webhooks lost and wrong."""
    of_jobs = (verdict.lost, verdict.duplicate_ends, verdict.wrong_answers, verdict.stuck)
    return (*of_jobs, verdict.webhooks_lost, verdict.webhooks_wrong)


def test_run_that_kept_every_promise_is_good() -> None:
    """Told once, or again under the same id, or first in vain."""
    verdict = judge([promise()], set(), [0.5, 1.25], [replace(TOLD, taken=False), TOLD, TOLD])
    assert verdict.good
    assert verdict.line() == (
        "accepted=1 ended=1 lost=0 duplicate_ends=0 wrong_answers=0 stuck=0 max_recovery_s=1.2 "
        "webhooks=1 webhooks_lost=0 webhooks_wrong=0"
    )


@pytest.mark.parametrize(
    ("promised", "lost", "heard", "expected"),
    [
        (lambda: promise(ends=[], webhook=False), {"job-1"}, [], (1, 0, 0, 0, 0, 0)),
        (lambda: promise(ends=[*promise().ends, {}], webhook=False), set(), [], (0, 1, 0, 0, 0, 0)),
        (lambda: promise(number=7, webhook=False), set(), [], (0, 0, 1, 0, 0, 0)),
        (lambda: promise(kind="killer", webhook=False), set(), [], (0, 0, 1, 0, 0, 0)),
        (lambda: promise(ends=[], webhook=False), set(), [], (0, 0, 0, 1, 0, 0)),
        (promise, set(), [], (0, 0, 0, 0, 1, 0)),
        (promise, set(), [replace(TOLD, taken=False)], (0, 0, 0, 0, 1, 0)),
        (promise, set(), [TOLD, replace(TOLD, event=None)], (0, 0, 0, 0, 0, 1)),
        (promise, set(), [TOLD, replace(TOLD, webhook_id="job-1-again")], (0, 0, 0, 0, 0, 1)),
        (promise, set(), [TOLD, told(error={"code": "model_unreachable"})], (0, 0, 0, 0, 0, 1)),
        (promise, set(), [TOLD, told(id="job-2")], (0, 0, 0, 0, 0, 1)),
        (lambda: promise(webhook=False), set(), [TOLD], (0, 0, 0, 0, 0, 1)),
    ],
    ids=[
        "unknown", "two ends", "another's answer", "a killer that lives", "stuck", "never told", "never taken",
        "unsigned", "under another id", "another end", "of nobody", "of one that asked for none",
    ],
)  # fmt: skip
def test_each_broken_promise_is_counted(
    promised: Callable[[], Promise], lost: set[str], heard: list[Heard], expected: tuple[int, ...]
) -> None:
    """One number each, and none of them is good."""
    verdict = judge([promised()], lost, [], heard)
    assert counts(verdict) == expected
    assert not verdict.good
