"""HTTP clients that cost little themselves: one blocking connection, and a load of many.

What they send is built once, and of an answer only status, length and body are read, so that on a small machine the
server and not the client is measured.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

ANSWER_TIMEOUT_SECONDS = 60


class BadAnswer(Exception):
    """A status of 400 or above."""


class HttpClient:
    """One kept connection to one server."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.netloc, timeout=ANSWER_TIMEOUT_SECONDS)

    def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Any:
        """Send a request; gives the JSON document of the answer.

        Raises:
            BadAnswer: it was refused or failed.
        """
        self._connection.request(method, path, body, dict(headers or {}))
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise BadAnswer(f"{method} {path}: {answer.status} {content[:200].decode(errors='replace')}")
        return json.loads(content)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def multipart(name: str, parts: Sequence[bytes]) -> tuple[bytes, str]:
    """A form of JPEGs, each a part of that name; gives the body and its content type."""
    boundary = uuid.uuid4().hex
    head = f'Content-Disposition: form-data; name="{name}"; filename="photo.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    pieces = [f"--{boundary}\r\n{head}".encode() + part + b"\r\n" for part in parts]
    return b"".join(pieces) + f"--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"


def post_bytes(url: str, path: str, body: bytes, content_type: str) -> bytes:
    """A POST request as it goes over the wire."""
    head = f"POST {path} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\nContent-Type: {content_type}\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


@dataclass
class LoadReport:
    """What a load brought.

    Attributes:
        seconds: how long it took.
        latencies_ms: one a request that was answered well.
        bad: answers that were none of the expected.
    """

    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    bad: int = 0

    @property
    def rate(self) -> float:
        """Requests a second."""
        return len(self.latencies_ms) / self.seconds


def run_load(
    url: str, request: bytes, *, connections: int, seconds: float, good: Callable[[int, bytes], bool]
) -> LoadReport:
    """Send a request again and again over several connections, each waiting for its answer before the next.

    Args:
        url: of the server.
        request: from :func:`post_bytes`.
        connections: how many there are.
        seconds: for how long new requests are begun.
        good: judges an answer by its status and body.
    """
    return asyncio.run(_load(url, request, connections, seconds, good))


async def _load(
    url: str, request: bytes, connections: int, seconds: float, good: Callable[[int, bytes], bool]
) -> LoadReport:
    report = LoadReport()
    started = time.monotonic()
    clients = [_repeat(url, request, started + seconds, good, report) for _ in range(connections)]
    async with asyncio.timeout(seconds + ANSWER_TIMEOUT_SECONDS):
        await asyncio.gather(*clients)
    report.seconds = time.monotonic() - started
    return report


async def _repeat(
    url: str, request: bytes, until: float, good: Callable[[int, bytes], bool], report: LoadReport
) -> None:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        while (began := time.monotonic()) < until:
            writer.write(request)
            if good(*await _answer(reader)):
                report.latencies_ms.append((time.monotonic() - began) * 1000)
            else:
                report.bad += 1
    finally:
        writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
    return int(head.split(b" ", 2)[1]), await reader.readexactly(int(length or 0))
