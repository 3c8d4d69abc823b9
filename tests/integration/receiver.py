"""HTTP servers on loopback for what goes out: they record what they are sent, and answer as a test tells them."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Received:
    """One request.

    Attributes:
        at: when, by the monotonic clock in seconds.
        headers: by their names in lower case.
    """

    at: float
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


#: A status that stands for closing the connection in place of an answer.
BREAK_OFF = 0


@dataclass
class Reply:
    """How to answer a request."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay_seconds: float = 0.0


class Receiver:
    """A recording server.

    Attributes:
        url: its root.
        received: all requests so far.
        replies: the answers of the next requests; after them it answers ``default``.
        connections: how many there were so far.
        most_in_flight: how many requests it had at the same time at most.
    """

    def __init__(self, server: ThreadingHTTPServer, *, scheme: str = "http") -> None:
        self.port: int = server.server_address[1]
        self.url = f"{scheme}://{server.server_address[0]!s}:{self.port}"
        self.received: list[Received] = []
        self.replies: deque[Reply] = deque()
        self.default: Reply | Callable[[Received], Reply] = Reply()
        self.connections = 0
        self.in_flight = 0
        self.most_in_flight = 0
        self.lock = threading.Lock()

    def reply(self, request: Received) -> Reply:
        """Record a request, and choose its answer."""
        with self.lock:
            self.received.append(request)
            if self.replies:
                return self.replies.popleft()
        return self.default(request) if callable(self.default) else self.default

    def ids(self) -> list[str]:
        """The webhook ids so far, in the order in which they came."""
        return [request.headers["webhook-id"] for request in list(self.received)]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def setup(self) -> None:
        """A connection has come."""
        super().setup()
        with self.receiver.lock:
            self.receiver.connections += 1

    def _serve(self) -> None:
        receiver = self.receiver
        with receiver.lock:
            receiver.in_flight += 1
            receiver.most_in_flight = max(receiver.most_in_flight, receiver.in_flight)
        try:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = receiver.reply(Received(time.monotonic(), self.command, self.path, headers, body))
            time.sleep(reply.delay_seconds)
            if reply.status == BREAK_OFF:
                self.close_connection = True
                return
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if "content-length" not in {name.lower() for name in reply.headers} and reply.status != 204:
                self.send_header("content-length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)
        finally:
            with receiver.lock:
                receiver.in_flight -= 1

    do_GET = do_POST = _serve  # noqa: N815 - the names that the base class looks for

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is what some tests are about."""


@contextmanager
def running_receiver(
    *, address: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[Receiver]:
    """Run one while the block runs."""
    handler = type("Handler", (_Handler,), {})
    with _Server((address, port), handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        receiver = Receiver(server, scheme="https" if tls else "http")
        handler.receiver = receiver  # type: ignore[attr-defined]  # set on the class just made
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


class RawServer(socketserver.ThreadingTCPServer):
    """A server that does with each connection what it is told, HTTP or not."""

    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """See above."""


@contextmanager
def running_raw(serve: Callable[[socket.socket], None], *, address: str = "127.0.0.1") -> Iterator[str]:
    """Run a server whose every connection is handed to ``serve`` once a request's headers have come; gives its URL."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            head = b""
            while b"\r\n\r\n" not in head:
                piece = self.request.recv(65536)
                if not piece:
                    return
                head += piece
            serve(self.request)

    with RawServer((address, 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://{address}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
