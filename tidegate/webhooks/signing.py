"""Secrets, and what is signed with them. A secret is read from the settings where it is used, and never passed on."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from datetime import UTC, datetime

from standardwebhooks import Webhook

from tidegate.settings import SECRET_PREFIX, Settings

NEW_SECRET_BYTES = 32


def new_secret() -> str:
    """A fresh secret, as the settings and receivers take it."""
    return SECRET_PREFIX + base64.b64encode(os.urandom(NEW_SECRET_BYTES)).decode()


def secrets_of(client: str, settings: Settings) -> tuple[str, ...]:
    """The secrets that sign a client's webhooks, newest first: its own, or else everybody's, if there are any."""
    own = settings.webhook_secrets_by_client
    for entry in own.get_secret_value().split(";") if own else ():
        name, _, secrets = entry.partition("=")
        if name == client:
            return tuple(secrets.split(","))
    default = settings.webhook_secret
    return tuple(default.get_secret_value().split(",")) if default else ()


def signed_headers(
    message_id: str, body: bytes, secrets: Sequence[str], *, at: datetime | None = None
) -> dict[str, str]:
    """The three headers by which a receiver knows that a body is ours, and when it was sent.

    Args:
        message_id: the same on every attempt.
        body: exactly as it is sent.
        secrets: each makes a signature of its own, so that receivers can move from one to another.
        at: the time of this attempt; now by default.
    """
    moment = at or datetime.now(UTC)
    text = body.decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": " ".join(Webhook(secret).sign(message_id, moment, text) for secret in secrets),
    }
