"""Sends photos through the REST API and waits for their jobs, as any client would."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tidegate.local.parts import PartFailed

TOP_CLASSES = 3
JOB_SECONDS = 60.0
HTTP_SECONDS = 10.0
POLL_SECONDS = 0.5
"""Where the answer brings no Retry-After."""
ADVICE = "`tidegate up` keeps the stack running for a closer look."
UNFINISHED = frozenset({"queued", "running"})


def open_client(api_url: str) -> httpx.Client:
    """A client for an API on this machine."""
    # The environment may name a proxy, which has no business between us and loopback.
    return httpx.Client(base_url=api_url, timeout=HTTP_SECONDS, trust_env=False)


def classify(photos: Sequence[Path], *, client: httpx.Client, pause: Callable[[float], None]) -> list[dict[str, Any]]:
    """Submit every photo, then poll each job until it has ended; one job a photo, in their order.

    Args:
        photos: files to send.
        client: for the API.
        pause: sleeps for so many seconds; not at all for less than none.

    Raises:
        PartFailed: the API refuses a photo or does not answer, or the worker does not end a job in time.
    """
    try:
        looks = [_submit(client, photo) for photo in photos]
        deadline = time.monotonic() + JOB_SECONDS
        return [_await_end(client, look, deadline=deadline, pause=pause) for look in looks]
    except httpx.TransportError as error:
        raise PartFailed("api", f"the API does not answer: {error}", advice=ADVICE) from error


@dataclass(frozen=True)
class _Look:
    """A job as it was at one moment, and when to look again (``time.monotonic()``)."""

    job: dict[str, Any]
    again_at: float


def _submit(client: httpx.Client, photo: Path) -> _Look:
    with photo.open("rb") as image:
        answer = client.post("/v1/jobs", files={"image": (photo.name, image)}, data={"top_k": str(TOP_CLASSES)})
    return _look(answer, what=photo.name)


def _await_end(client: httpx.Client, look: _Look, *, deadline: float, pause: Callable[[float], None]) -> dict[str, Any]:
    while look.job["status"] in UNFINISHED:
        if time.monotonic() > deadline:
            lateness = f"job {look.job['id']} is still {look.job['status']} after {JOB_SECONDS:g} s"
            raise PartFailed("worker-1", lateness, advice=ADVICE)
        pause(look.again_at - time.monotonic())
        look = _look(client.get(look.job["urls"]["get"]), what=f"job {look.job['id']}")
    return look.job


def _look(answer: httpx.Response, *, what: str) -> _Look:
    if not answer.is_success:
        raise PartFailed("api", f"{what}: the API answers {answer.status_code}: {answer.text}", advice=ADVICE)
    retry_after_seconds = float(answer.headers.get("Retry-After", POLL_SECONDS))
    return _Look(answer.json(), time.monotonic() + retry_after_seconds)
