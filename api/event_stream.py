"""A job's progress as server-sent events: queued with its place, running, and how it ended.

Every event is the job as it stands, under an id that tells what of it the client has seen. A client that connects again
with ``Last-Event-ID`` is told what has changed since, and of a start that it missed. Source: the WHATWG HTML standard,
"Server-sent events".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.disconnect import unless_gone
from api.waiters import Waiters
from tidegate.errors import StoreUnavailable
from tidegate.jobs import JobRecord, State

#: A comment so often tells proxies and clients that the connection lives.
HEARTBEAT_SECONDS = 15.0
#: When a client that lost its connection is to try again.
RETRY_MS = 2000

_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


def event_id(record: JobRecord) -> str:
    """What of a job its client has seen: the run that it waits for or is in, and its place; or its end."""
    if record.state.terminal:
        return record.state
    place = f"-{record.position}" if record.position is not None else ""
    return f"{record.state}-{record.attempts}{place}"


def news_since(last_id: str, record: JobRecord) -> Iterator[JobRecord]:
    """What to tell of a job to one who has seen ``last_id``, or nothing where that is empty."""
    # A start that nobody told of, because the end came with it or the connection was lost.
    if record.state.terminal and record.started_ms and last_id.startswith(State.QUEUED):
        yield replace(record, state=State.RUNNING, finished_ms=None, result=None, error=None, run={})
    if event_id(record) != last_id:
        yield record


def render(record: JobRecord, job: bytes) -> bytes:
    """One event, with the job as JSON."""
    name = "ended" if record.state.terminal else record.state.value
    return f"id: {event_id(record)}\nevent: {name}\ndata: ".encode() + job + b"\n\n"


class JobEvents:
    """The events of one job for one client."""

    def __init__(self, waiters: Waiters, job_id: str, *, last_id: str, show: Callable[[JobRecord], bytes]) -> None:
        self._waiters = waiters
        self._job_id = job_id
        self._last_id = last_id
        self._show = show

    async def chunks(self) -> AsyncIterator[bytes]:
        """What is to be sent, until the job has ended, is no longer kept, or the process stops."""
        yield f"retry: {RETRY_MS}\n\n".encode()
        with self._waiters.watching(self._job_id, of_progress=True) as watch:
            record: JobRecord | None = await self._waiters.read(self._job_id)
            while record is not None:
                for each in news_since(self._last_id, record):
                    self._last_id = event_id(each)
                    yield render(each, self._show(each))
                if record.state.terminal or self._waiters.hurried:
                    return
                while not await watch.wait(until=asyncio.get_running_loop().time() + HEARTBEAT_SECONDS):
                    yield b": ping\n\n"
                record = await self._next(record)

    async def _next(self, record: JobRecord) -> JobRecord | None:
        try:
            return await self._waiters.read(record.id)
        except StoreUnavailable:
            # It is told again when Redis is back; until then the client knows what it knew.
            return record


class EventStream(Response):
    """Sends events as they come, and stops when the client has gone."""

    media_type = "text/event-stream"

    def __init__(self, events: JobEvents) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the head at once, so that the client knows that it is heard."""
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})

        async def pour() -> None:
            async for chunk in self._events.chunks():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await unless_gone(Request(scope, receive), pour())
        except ClientDisconnect:
            return
