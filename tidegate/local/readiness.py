"""How one tells that a part of the stack is up, and the wait until all are.

Each probe is a small value that can be called; see :data:`tidegate.local.parts.Probe`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from tidegate.catalogue import ModelState, read_catalogue
from tidegate.errors import StoreUnavailable
from tidegate.local.parts import Part, PartFailed
from tidegate.settings import Settings
from tidegate.store import connect

PROBE_SECONDS = 1.0
ROUND_SECONDS = 0.1


def await_ready(parts: Sequence[Part], *, timeout_seconds: float, pause: Callable[[float], None]) -> None:
    """Return once every part is up.

    Args:
        parts: those to ask, all of them round after round.
        timeout_seconds: the longest wait for all of them together.
        pause: sleeps for so many seconds, and raises when there is no point in waiting any more.

    Raises:
        PartFailed: the time is over; names the first part that is not up, and what it lacks.
    """
    deadline = time.monotonic() + timeout_seconds
    while lacking := [(part, lack) for part in parts if (lack := _lack(part)) is not None]:
        if time.monotonic() > deadline:
            part, lack = lacking[0]
            raise PartFailed(
                part.name, f"{part.name} was not ready within {timeout_seconds:g} s: {lack}", advice=part.advice
            )
        parts = [part for part, _ in lacking]
        pause(ROUND_SECONDS)


def _lack(part: Part) -> str | None:
    """What the first probe that is not content says."""
    return next((lack for probe in part.ready if (lack := probe()) is not None), None)


@dataclass(frozen=True)
class RedisAnswers:
    """Redis answers a PING, so it has also read what it kept."""

    settings: Settings

    def __call__(self) -> str | None:
        """Ask once."""
        try:
            with connect(self.settings, max_connections=1) as client:
                client.ping()
        except RedisError as error:
            return str(error)
        return None


@dataclass(frozen=True)
class PageAnswers:
    """A URL answers a GET with success."""

    url: str

    def __call__(self) -> str | None:
        """Ask once."""
        answer = _get(self.url)
        if isinstance(answer, str):
            return answer
        return None if answer.is_success else f"{self.url} answers {answer.status_code}"


@dataclass(frozen=True)
class ModelServed:
    """The API lists a model that is ready."""

    api_url: str

    def __call__(self) -> str | None:
        """Ask once."""
        url = f"{self.api_url}/v1/models"
        answer = _get(url)
        if isinstance(answer, str):
            return answer
        if not answer.is_success:
            return f"{url} answers {answer.status_code}"
        return _no_model_ready(answer.json()["models"])


@dataclass(frozen=True)
class ModelReported:
    """A worker has found a model in Triton that is ready."""

    settings: Settings

    def __call__(self) -> str | None:
        """Ask once."""
        try:
            with connect(self.settings, max_connections=1) as client:
                entries = read_catalogue(client, self.settings).values()
        except StoreUnavailable as error:
            return str(error)
        return _no_model_ready([entry.model_dump() for entry in entries])


@dataclass(frozen=True)
class NodeAnswers:
    """A Celery worker answers to its name.

    Attributes:
        redis_url: the broker.
        node: as in ``celery worker -n``.
    """

    redis_url: str
    node: str

    def __call__(self) -> str | None:
        """Ask once."""
        try:
            with Celery(broker=self.redis_url, set_as_current=False) as app:
                # Celery would try again by itself, while whoever asks may want to know that the stack is ending.
                app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0}
                answers = app.control.ping(destination=[self.node], timeout=PROBE_SECONDS)
        except (OperationalError, OSError) as error:
            return str(error)
        return None if answers else f"no Celery worker answers as {self.node}"


def _get(url: str) -> httpx.Response | str:
    """The answer, or why there is none."""
    try:
        # The environment may name a proxy, which has no business between us and loopback.
        return httpx.get(url, timeout=PROBE_SECONDS, trust_env=False)
    except httpx.HTTPError as error:
        return f"{url} does not answer: {error}"


def _no_model_ready(models: Sequence[dict[str, Any]]) -> str | None:
    if any(model["state"] == ModelState.READY for model in models):
        return None
    reasons = "; ".join(f"{model['name']} is {model['state']}: {model['reason']}" for model in models)
    return f"no model is ready ({reasons or 'no worker has reported one'})"
