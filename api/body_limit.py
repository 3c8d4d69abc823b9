"""A cap on the bytes of a request's body, counted as they arrive, whatever the request declares."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidegate.errors import ImageTooLarge

#: A longer number is no Content-Length that a server let through.
_MAX_DIGITS = 19
_TOO_LARGE = "The body is larger than any image that is accepted."


class BodyLimit:
    """Raises ImageTooLarge from ``receive`` once a body is larger than ``max_bytes``, by declaration or in fact.

    FastAPI's own ``max_body_size`` answers an honest Content-Length in plain text; every error of ours is a problem.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, with a ``receive`` that counts."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = _declared_bytes(scope)
        received = 0

        async def counting_receive() -> Message:
            nonlocal received
            if declared is not None and declared > self._max_bytes:
                raise ImageTooLarge(_TOO_LARGE)
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise ImageTooLarge(_TOO_LARGE)
            return message

        async def closing_send(message: Message) -> None:
            # A body of unknown length may never end: its connection must not stay open to swallow it.
            if message["type"] == "http.response.start" and received > self._max_bytes:
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, counting_receive, closing_send)


def _declared_bytes(scope: Scope) -> int | None:
    declared = Headers(scope=scope).get("content-length", "")
    return int(declared) if declared.isascii() and declared.isdigit() and len(declared) <= _MAX_DIGITS else None
