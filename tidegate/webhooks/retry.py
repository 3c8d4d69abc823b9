"""What to do after an attempt to deliver a webhook: a pure decision over the answer and the delivery."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tidegate.webhooks.deliveries import DeliveryState, Report

#: The longest pause after the first failure; it doubles with each further one, and its jitter is full.
#: Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015.
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 3600.0
#: The least pause, so that full jitter never means "at once".
LEAST_PAUSE_SECONDS = 1.0
#: A whole host is left alone for no longer than this because of one answer, since a host may be many receivers'.
LONGEST_HOLD_SECONDS = 60.0
#: As much of an answer's reason phrase as is kept.
NOTE_CHARACTERS = 80

#: Answers besides 5xx that say "not now": request timeout, too early, too many requests.
PASSING_STATUSES = frozenset({408, 425, 429})
GONE = 410


@dataclass(frozen=True)
class Answer:
    """How a receiver answered.

    Attributes:
        status: of HTTP; None when there was no answer.
        note: the reason phrase, or why there was no answer.
        retry_after: the header, if any.
        refused: it was not sent, because its URL leads where Tidegate does not go.
    """

    status: int | None
    note: str = ""
    retry_after: str | None = None
    refused: bool = False


def judge(
    answer: Answer,
    *,
    attempts: int,
    age_seconds: float,
    give_up_seconds: float,
    jitter: Callable[[], float] = random.random,
) -> Report:
    """What becomes of a delivery.

    2xx delivers it. 408, 425, 429, 5xx and no answer at all are tried again; everything else ends it, redirects too.

    Args:
        answer: to this attempt.
        attempts: so far, this one included.
        age_seconds: since the delivery was first due.
        give_up_seconds: how old it may become.
        jitter: gives a number in [0, 1).
    """
    status, note = answer.status, _printable(answer.note)
    if status is not None and 200 <= status < 300:  # noqa: PLR2004 - HTTP's own
        return Report(DeliveryState.DELIVERED, host_works=True, status=status, note=note)
    if not _passes(answer):
        return Report(DeliveryState.FAILED, host_works=True, status=status, note=note, gone=status == GONE)
    asked = retry_after_seconds(answer.retry_after)
    delay = max(pause_seconds(attempts, jitter), asked)
    state = DeliveryState.DEAD if age_seconds + delay > give_up_seconds else DeliveryState.PENDING
    return Report(
        state,
        host_works=False,
        delay_ms=round(delay * 1000),
        hold_ms=round(min(asked, LONGEST_HOLD_SECONDS) * 1000),
        status=status,
        note=note,
    )


def pause_seconds(attempts: int, jitter: Callable[[], float] = random.random) -> float:
    """How long to wait after so many attempts: exponential, with full jitter."""
    ceiling = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(attempts - 1, 30))
    return max(LEAST_PAUSE_SECONDS, ceiling * jitter())


def retry_after_seconds(header: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float:
    """How long a receiver asks to wait, in seconds or until a date; 0 when it does not, or in words nobody knows.

    Source: RFC 9110, section 10.2.3.
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        # More digits than any time has would be a number too large for a clock.
        return float(text[:10])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now()).total_seconds())


def _passes(answer: Answer) -> bool:
    if answer.refused:
        return False
    return answer.status is None or answer.status in PASSING_STATUSES or answer.status >= 500  # noqa: PLR2004


def _printable(note: str) -> str:
    return "".join(character for character in note if character.isprintable())[:NOTE_CHARACTERS]
