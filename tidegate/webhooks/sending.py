"""One attempt to deliver a webhook: a signed POST through the door, and how it was answered."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

import httpx

from tidegate.errors import OutboundError, UrlNotAllowed
from tidegate.outbound import Door
from tidegate.webhooks.retry import Answer

USER_AGENT = "Tidegate-Webhooks/1"
#: As much of an answer's body as is read, unseen, so that its connection can serve the next request.
DRAINED_BYTES = 64 * 1024


def send(door: Door, url: str, body: bytes, *, headers: Mapping[str, str], limit_seconds: float) -> Answer:
    """POST it and give the answer, whatever it is; redirects are answers like others.

    Args:
        door: the way out.
        url: judged again, since what is allowed may have changed.
        body: JSON.
        headers: the signed ones, and ours.
        limit_seconds: over everything.
    """
    fixed = {
        "content-type": "application/json",
        "user-agent": USER_AGENT,
        "accept": "*/*",
        "accept-encoding": "identity",
    }
    try:
        judged = door.rules.judge(url)
        with door.request(
            "POST", judged, headers={**fixed, **headers}, limit_seconds=limit_seconds, content=body
        ) as response:
            answer = Answer(response.status_code, response.reason_phrase, response.headers.get("retry-after"))
            _drain(response)
    except UrlNotAllowed as error:
        return Answer(None, str(error), refused=True)
    except OutboundError as error:
        return Answer(None, str(error))
    return answer


def _drain(response: httpx.Response) -> None:
    """Read a short body to its end. The status has come, so whatever happens to the rest changes nothing."""
    with suppress(OutboundError):
        for _ in response.iter_raw():
            if response.num_bytes_downloaded > DRAINED_BYTES:
                break
