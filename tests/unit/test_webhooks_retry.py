"""What becomes of a webhook after each kind of answer, as a table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from tidegate.webhooks.deliveries import DeliveryState, Report
from tidegate.webhooks.retry import (
    FIRST_PAUSE_SECONDS,
    LEAST_PAUSE_SECONDS,
    LONGEST_HOLD_SECONDS,
    LONGEST_PAUSE_SECONDS,
    NOTE_CHARACTERS,
    Answer,
    judge,
    pause_seconds,
    retry_after_seconds,
)

DAY_SECONDS = 86_400.0
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)

DELIVERED, FAILED, PENDING, DEAD = (
    DeliveryState.DELIVERED,
    DeliveryState.FAILED,
    DeliveryState.PENDING,
    DeliveryState.DEAD,
)


def judged(answer: Answer, *, attempts: int = 1, age_seconds: float = 0.0, jitter: float = 1.0) -> Report:
    """What becomes of a delivery that may become a day old."""
    return judge(answer, attempts=attempts, age_seconds=age_seconds, give_up_seconds=DAY_SECONDS, jitter=lambda: jitter)


@pytest.mark.parametrize(
    ("status", "state", "host_works"),
    [
        (200, DELIVERED, True),
        (201, DELIVERED, True),
        (202, DELIVERED, True),
        (204, DELIVERED, True),
        (299, DELIVERED, True),
        (300, FAILED, True),
        (301, FAILED, True),
        (302, FAILED, True),
        (307, FAILED, True),
        (308, FAILED, True),
        (400, FAILED, True),
        (401, FAILED, True),
        (403, FAILED, True),
        (404, FAILED, True),
        (405, FAILED, True),
        (408, PENDING, False),
        (409, FAILED, True),
        (410, FAILED, True),
        (413, FAILED, True),
        (422, FAILED, True),
        (425, PENDING, False),
        (429, PENDING, False),
        (500, PENDING, False),
        (501, PENDING, False),
        (502, PENDING, False),
        (503, PENDING, False),
        (504, PENDING, False),
        (599, PENDING, False),
        (None, PENDING, False),
    ],
)
def test_answer_decides(status: int | None, state: DeliveryState, host_works: bool) -> None:  # noqa: FBT001 - a table
    """2xx delivers; what may pass is tried again, and slows its host down; the rest ends it."""
    report = judged(Answer(status))
    assert (report.state, report.host_works, report.status) == (state, host_works, status)


def test_only_410_disables_the_url() -> None:
    """Whoever says that it is gone does not want to be asked again."""
    assert [status for status in range(200, 600) if judged(Answer(status)).gone] == [410]


def test_url_that_leads_where_we_do_not_go_ends_it() -> None:
    """There is no answer, and another try would be refused likewise."""
    assert judged(Answer(None, "The host of this URL is not a public one.", refused=True)).state is FAILED


@pytest.mark.parametrize(
    ("attempts", "longest"),
    [(1, 5), (2, 10), (3, 20), (4, 40), (8, 640), (10, 2560), (11, 3600), (12, 3600), (1000, 3600)],
)
def test_pauses_double_up_to_an_hour(attempts: int, longest: float) -> None:
    """From five seconds on; that many attempts are no reason for an overflow."""
    assert pause_seconds(attempts, jitter=lambda: 1.0) == longest
    assert FIRST_PAUSE_SECONDS <= longest <= LONGEST_PAUSE_SECONDS


def test_jitter_is_full_but_never_means_at_once() -> None:
    """Deliveries that failed together are spread over the whole pause."""
    assert pause_seconds(5, jitter=lambda: 0.25) == 20.0
    assert pause_seconds(5, jitter=lambda: 0.0) == LEAST_PAUSE_SECONDS


@pytest.mark.parametrize(
    ("age_seconds", "delay", "state"),
    [
        (0.0, 3600, PENDING),
        (DAY_SECONDS - 3600, 3600, PENDING),
        (DAY_SECONDS - 3599, 3600, DEAD),
        (DAY_SECONDS, 1, DEAD),
    ],
)
def test_delivery_dies_when_its_next_attempt_would_be_too_late(
    age_seconds: float, delay: float, state: DeliveryState
) -> None:
    """Not one attempt is made after the time that it has."""
    jitter = delay / LONGEST_PAUSE_SECONDS
    assert judged(Answer(500), attempts=99, age_seconds=age_seconds, jitter=jitter).state is state


@pytest.mark.parametrize(
    ("header", "delay_ms", "hold_ms"),
    [
        (None, 5_000, 0),
        ("", 5_000, 0),
        ("soon", 5_000, 0),
        ("-3", 5_000, 0),
        ("3", 5_000, 3_000),
        ("7", 7_000, 7_000),
        (" 120 ", 120_000, LONGEST_HOLD_SECONDS * 1000),
    ],
)
def test_retry_after_puts_the_next_attempt_off(header: str | None, delay_ms: int, hold_ms: int) -> None:
    """It never makes it earlier; and the host as a whole rests, though no longer than a minute."""
    report = judged(Answer(429, retry_after=header))
    assert (report.delay_ms, report.hold_ms) == (delay_ms, hold_ms)


def test_retry_after_beyond_its_time_ends_it() -> None:
    """Whoever wants to be asked next week is not asked."""
    assert judged(Answer(503, retry_after=str(7 * 86_400))).state is DEAD
    assert judged(Answer(503, retry_after="9" * 400)).state is DEAD


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (format_datetime(NOW + timedelta(seconds=90), usegmt=True), 90.0),
        (format_datetime(NOW - timedelta(seconds=90), usegmt=True), 0.0),
        ("Sun, 29 Nov 2026 12:00:30 -0000", 30.0),
        ("Sunday, 29-Nov-26 12:00:30 GMT", 30.0),
        ("Sun, 99 Nov 2026 12:00:30 GMT", 0.0),
        ("٣", 0.0),
    ],
)
def test_retry_after_may_be_a_date(header: str, seconds: float) -> None:
    """In any of HTTP's spellings; one that is past or nonsense asks for nothing."""
    assert retry_after_seconds(header, lambda: NOW) == seconds


def test_note_is_short_and_can_be_printed() -> None:
    """A receiver's words stand in answers and in terminals."""
    report = judged(Answer(500, "Oh\x1b[31m no\r\n" + "x" * 1000))
    assert report.note.startswith("Oh[31m no")
    assert len(report.note) == NOTE_CHARACTERS
