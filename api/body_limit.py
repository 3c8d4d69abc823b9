"""What a body may take: bytes, counted as they arrive whatever is declared; room in this process; and time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.body_room import BodyRoom, BodyShare
from api.deadline import Deadline
from tidegate.errors import ImageTooLarge, TidegateError, UploadTimeout

#: A longer number is no Content-Length that a server let through.
_MAX_DIGITS = 19
_TOO_LARGE = "The body is larger than any image that is accepted."


class BodyLimit:
    """Guards every body from within ``receive``.

    It raises ImageTooLarge once a body is larger than its limit, by declaration or in fact; UploadsFull when the
    process has no room for it; and UploadTimeout when it does not arrive in time.

    FastAPI's own ``max_body_size`` answers an honest Content-Length in plain text; every error of ours is a problem.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        max_bytes: int,
        room: BodyRoom,
        timeout_seconds: float,
        max_bytes_by_path: Mapping[str, int] | None = None,
    ) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._room = room
        self._timeout_seconds = timeout_seconds
        self._max_bytes_by_path = max_bytes_by_path or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a ``receive`` that watches."""
        if scope["type"] != "http" or not _may_have_body(scope):
            await self._app(scope, receive, send)
            return
        body = _Body(receive, self._limit_of(scope), self._timeout_seconds, BodyShare(self._room, scope))
        body.declared = _declared_bytes(scope)

        async def closing_send(message: Message) -> None:
            # A body of unknown length may never end: its connection must not stay open to swallow it.
            if message["type"] == "http.response.start" and body.is_too_large:
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        try:
            await self._app(scope, body.receive, closing_send)
        finally:
            body.share.give_back()

    def _limit_of(self, scope: Scope) -> int:
        # The path may begin with the prefix of a proxy.
        for path, limit in self._max_bytes_by_path.items():
            if scope["path"].endswith(path):
                return limit
        return self._max_bytes


class _Body:
    """One request's body, as far as it has arrived."""

    def __init__(self, receive: Receive, max_bytes: int, timeout_seconds: float, share: BodyShare) -> None:
        self._receive = receive
        self._max_bytes = max_bytes
        self._timeout_seconds = timeout_seconds
        self._due: float | None = None
        self._received = 0
        self._complete = False
        self.share = share
        self.declared: int | None = None

    @property
    def is_too_large(self) -> bool:
        """Whether more has arrived than may."""
        return self._received > self._max_bytes

    async def receive(self) -> Message:
        """The next message; after the body is complete, whatever the server says, for as long as it takes."""
        if self._complete:
            return await self._receive()
        if self.declared is not None:
            if self.declared > self._max_bytes:
                raise ImageTooLarge(_TOO_LARGE)
            self.share.take_up_to(self.declared)
        message = await self._receive_in_time()
        self._received += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        if self.is_too_large:
            raise ImageTooLarge(_TOO_LARGE)
        self.share.take_up_to(self._received)
        return message

    async def _receive_in_time(self) -> Message:
        now = asyncio.get_running_loop().time()
        self._due = self._due or now + self._timeout_seconds
        async with Deadline(self._due - now, _too_slow):
            return await self._receive()


def _too_slow() -> TidegateError:
    return UploadTimeout("The body of the request took too long to arrive.")


def _may_have_body(scope: Scope) -> bool:
    """In HTTP/1 one of two headers announces it; later versions need none. Source: RFC 9112, section 6."""
    if scope["http_version"] not in ("1.0", "1.1"):
        return True
    return any(name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"])


def _declared_bytes(scope: Scope) -> int | None:
    declared = Headers(scope=scope).get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() and len(declared) <= _MAX_DIGITS else None
