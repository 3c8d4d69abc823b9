"""Delivers webhooks: one attempt, in a thread of the worker that was started for them."""

from __future__ import annotations

import structlog

from tidegate.ledger import Ledger
from tidegate.outbound import Door
from tidegate.outgoing import Errand
from tidegate.settings import Settings
from tidegate.webhooks.deliveries import Attempt, record, start_delivery
from tidegate.webhooks.messages import render
from tidegate.webhooks.retry import Answer, judge
from tidegate.webhooks.sending import send
from tidegate.webhooks.signing import secrets_of, signed_headers
from worker.insist import insist

log = structlog.get_logger(__name__)


class WebhookSender:
    """Makes attempts on the ports it is given; safe to use from many threads."""

    def __init__(self, ledger: Ledger, door: Door, settings: Settings) -> None:
        self._ledger = ledger
        self._door = door
        self._settings = settings

    def deliver(self, errand: Errand) -> str:
        """Try once, and write down what came of it; gives the state of the delivery, or ``skipped``.

        A worker that dies between the two has told nobody, so that the same is sent once more when its lease has run
        out: receivers tell it by its id.

        Raises:
            StoreUnavailable: Redis does not take it; it comes again likewise.
        """
        attempt = self._ledger.run(start_delivery(errand, self._settings))
        if attempt is None:
            return "skipped"
        answer = self._send(attempt)
        report = judge(
            answer,
            attempts=attempt.attempts,
            age_seconds=attempt.age_ms / 1000,
            give_up_seconds=self._settings.webhook_give_up_seconds,
        )
        state = insist(lambda: self._ledger.run(record(attempt, report)))
        log.info(
            "webhook.attempted",
            delivery_id=attempt.delivery_id,
            attempt=attempt.attempts,
            status=answer.status,
            note=report.note,
            state=state,
        )
        return state

    def _send(self, attempt: Attempt) -> Answer:
        secrets = secrets_of(attempt.client, self._settings)
        if not secrets:
            return Answer(None, "This worker has no secret to sign with.")
        if attempt.job is None:
            return Answer(None, "The job is no longer kept.", refused=True)
        body = render(attempt.event, attempt.job, path=attempt.path)
        headers = signed_headers(attempt.delivery_id, body, secrets)
        headers["tidegate-attempt"] = str(attempt.attempts)
        return send(
            self._door, attempt.url, body, headers=headers, limit_seconds=self._settings.webhook_timeout_seconds
        )
