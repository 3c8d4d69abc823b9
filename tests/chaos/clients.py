"""Clients that submit at a steady rate, try again when they are refused or cut off, and remember what was promised."""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import httpx

from tests.chaos.pictures import broken_picture, killer_picture, picture

#: Submissions a second, by each of the clients.
RATE_PER_SECOND = 4.0
CLIENTS = 4
#: What is sent, and how often out of a hundred times; the rest are ordinary images.
ODDITIES = {"broken": 4, "canceled": 5, "hasty": 5}
HASTY_SECONDS = 2
#: Every so many jobs one has its end told by webhook.
WEBHOOK_EVERY = 3
TERMINAL = frozenset({"succeeded", "failed", "canceled", "expired"})


@dataclass
class Promise:
    """A job that was accepted, and what its client has seen of it.

    Attributes:
        kind: ``plain``, ``killer``, or one of :data:`ODDITIES`.
        webhook: whether its end is to be told.
        ends: every end that was ever read of it, without repetitions.
    """

    job_id: str
    kind: str
    number: int
    webhook: bool = False
    ends: list[dict[str, Any]] = field(default_factory=list)

    def note(self, job: dict[str, Any]) -> None:
        """Remember a reading of the job."""
        if job["status"] not in TERMINAL:
            return
        end = end_of(job)
        if end not in self.ends:
            self.ends.append(end)


def end_of(job: dict[str, Any]) -> dict[str, Any]:
    """What is final in a job that has ended."""
    return {name: job[name] for name in ("status", "finished_at", "result", "error")}


class Clients:
    """All of them, on threads of their own while :meth:`submitting` runs."""

    def __init__(self, url: str, seed: int, *, webhook_url: str) -> None:
        self._url = url
        self._webhook_url = webhook_url
        self._seed = seed
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.promises: list[Promise] = []
        self.refusals = 0

    @contextmanager
    def submitting(self) -> Iterator[None]:
        """Submit until the block ends."""
        threads = [threading.Thread(target=self._submit_steadily, args=(number,)) for number in range(CLIENTS)]
        threads.append(threading.Thread(target=self._watch))
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def submit(self, http: httpx.Client, kind: str, *, patience_seconds: float = 60.0) -> Promise:
        """Have one job accepted, however often that must be tried."""
        with self._lock:
            number = next(self._numbers)
        make = {"broken": broken_picture, "killer": killer_picture}.get(kind, picture)
        headers = {"Idempotency-Key": f'"{uuid.uuid4()}"', "Content-Type": "image/png"}
        params: dict[str, str] = {"expires_in": str(HASTY_SECONDS)} if kind == "hasty" else {}
        webhook = number % WEBHOOK_EVERY == 0
        if webhook:
            params["webhook_url"] = f"{self._webhook_url}/{number}"
        deadline = time.monotonic() + patience_seconds
        while True:
            try:
                answer = http.post("/v1/jobs", content=make(number), headers=headers, params=params)
            except httpx.TransportError:
                answer = None
            if answer is not None and answer.status_code in (200, 202):
                break
            if answer is not None and answer.status_code < 500:
                raise AssertionError(f"a good submission was refused: {answer.text}")
            self.refusals += 1
            assert time.monotonic() < deadline, "no submission was accepted any more"
            time.sleep(0.1)
        promise = Promise(answer.json()["id"], kind, number, webhook)
        with self._lock:
            self.promises.append(promise)
        return promise

    def read(self, http: httpx.Client, promise: Promise) -> int:
        """Read a job once; gives the status of the answer, or 0 when there was none."""
        try:
            answer = http.get(f"/v1/jobs/{promise.job_id}")
        except httpx.TransportError:
            return 0
        if answer.status_code == 200:
            promise.note(answer.json())
        return answer.status_code

    def read_until_ended(self, promise: Promise, seconds: float) -> bool:
        """Read a job until it has ended; False when it did not in time."""
        deadline = time.monotonic() + seconds
        with self.http() as http:
            while not promise.ends:
                if time.monotonic() > deadline:
                    return False
                self.read(http, promise)
                time.sleep(0.05)
        return True

    def http(self) -> httpx.Client:
        """A connection as clients have it."""
        return httpx.Client(base_url=self._url, timeout=5.0)

    def _submit_steadily(self, client: int) -> None:
        random = Random(f"{self._seed}/{client}")
        with self.http() as http:
            while not self._stop.wait(random.expovariate(RATE_PER_SECOND)):
                promise = self.submit(http, _draw_kind(random))
                if promise.kind == "canceled":
                    self._cancel(http, promise)

    def _cancel(self, http: httpx.Client, promise: Promise) -> None:
        try:
            http.delete(f"/v1/jobs/{promise.job_id}")
        except httpx.TransportError:
            # It was canceled, or it was not; either is a good end.
            return

    def _watch(self) -> None:
        """Read what has not ended, again and again, and some of what has: ends do not change."""
        random = Random(f"{self._seed}/watch")
        with self.http() as http:
            while not self._stop.wait(0.2):
                with self._lock:
                    promises = list(self.promises)
                waiting = [promise for promise in promises if not promise.ends]
                over = [promise for promise in promises if promise.ends]
                for promise in [*waiting[-40:], *random.sample(over, min(5, len(over)))]:
                    if self.read(http, promise) == 0:
                        break


def _draw_kind(random: Random) -> str:
    drawn = random.randrange(100)
    for kind, share in ODDITIES.items():
        if drawn < share:
            return kind
        drawn -= share
    return "plain"
