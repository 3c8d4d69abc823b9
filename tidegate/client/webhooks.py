"""Receiving webhooks: whether a request is Tidegate's, and fresh. Needs the extra ``tidegate[webhooks]``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any


class InvalidWebhook(ValueError):
    """The request is not signed with this secret, or its time is not now: answer it with 400, and do nothing."""


def verify(body: bytes, headers: Mapping[str, str], secret: str | Iterable[str]) -> dict[str, Any]:
    """The event in a webhook, once it is certain who sent it, and when.

    Tell repeats apart by the header ``webhook-id``: a webhook may come more than once.

    Args:
        body: the request's body, byte for byte as it came: not parsed and written again.
        headers: the request's headers, in any case.
        secret: ``whsec_...`` as it was agreed; more than one while the secret is being changed.

    Raises:
        InvalidWebhook: the signature fits none of the secrets, a header is missing, or the time is more than five
            minutes off.
        ValueError: a secret is none.
    """
    # Only receivers need the library, so that the rest of the client does without it.
    from standardwebhooks import Webhook, WebhookVerificationError  # noqa: PLC0415

    for verifier in [Webhook(text) for text in ([secret] if isinstance(secret, str) else secret)]:
        # The library lets errors of decoding through as they are; to a receiver they mean the same.
        with suppress(WebhookVerificationError, ValueError):
            event: dict[str, Any] = verifier.verify(body, dict(headers))
            return event
    raise InvalidWebhook("This webhook is not signed with the secret, or not fresh.")
