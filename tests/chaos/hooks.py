"""A receiver of webhooks as bad as real ones: it fails, hangs, is killed, comes back, and keeps what it is sent."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from standardwebhooks import Webhook as Oracle
from standardwebhooks import WebhookVerificationError

from tests.integration.receiver import BREAK_OFF, Received, Reply, running_receiver
from tests.integration.server_process import free_ports
from tidegate.webhooks.signing import new_secret

HOST = "127.0.0.1"
#: How many out of a hundred requests are answered with a failure, and how many not in time.
FAILURES, HANGS = 10, 2
#: How long a sender waits for an answer, and how long one that hangs takes, in seconds.
TIMEOUT_SECONDS = 2.0
HANG_SECONDS = 3.0


@dataclass(frozen=True)
class Heard:
    """One request.

    Attributes:
        webhook_id: as its header tells.
        event: what it says; None when its signature is wrong.
        taken: whether the answer was that it arrived.
        at: when it came, by the monotonic clock in seconds.
    """

    webhook_id: str
    event: dict[str, Any] | None
    taken: bool
    at: float = 0.0


class Hooks:
    """See the module.

    Attributes:
        secret: with which what comes must be signed.
        port: the same over all its lives.
        heard: all requests so far.
    """

    def __init__(self, seed: int) -> None:
        self.secret = new_secret()
        (self.port,) = free_ports(1)
        self.heard: list[Heard] = []
        self._random = Random(f"{seed}/hooks")
        self._bad = True
        self._alive = False
        self._lock = threading.Lock()
        self._running = ExitStack()

    @property
    def url(self) -> str:
        """Its root."""
        return f"http://{HOST}:{self.port}"

    def start(self) -> None:
        """Serve, also again."""
        self._alive = True
        self._running.enter_context(running_receiver(address=HOST, port=self.port)).default = self._answer

    def kill(self) -> None:
        """Be gone: nothing answers at the address, and what is in hand breaks off."""
        self._alive = False
        self._running.close()

    def wait_for_one(self, since: float, *, seconds: float) -> None:
        """Wait until something has been taken that came after a moment of the monotonic clock, or the time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(each.taken and each.at > since for each in reversed(self.heard)):
            time.sleep(0.02)

    def behave(self) -> None:
        """Fail no more."""
        self._bad = False

    def _answer(self, request: Received) -> Reply:
        with self._lock:
            # One whose sender died while it sent is no request.
            if not self._alive or len(request.body) < int(request.headers.get("content-length", 0)):
                return Reply(BREAK_OFF)
            drawn = self._random.randrange(100) if self._bad else 100
            event = self._read(request)
            taken = event is not None and drawn >= FAILURES + HANGS
            self.heard.append(Heard(request.headers.get("webhook-id", ""), event, taken, request.at))
        if event is None:
            return Reply(400)
        if taken:
            return Reply()
        return Reply(500) if drawn < FAILURES else Reply(delay_seconds=HANG_SECONDS)

    def _read(self, request: Received) -> dict[str, Any] | None:
        try:
            event: dict[str, Any] = Oracle(self.secret).verify(request.body, request.headers)
        except WebhookVerificationError:
            return None
        return event
