"""A receiver of webhooks that costs as little as may be: it checks each signature, and counts.

``python -m benchmarks.apps.webhook_receiver PORT``, with the secret in ``WEBHOOK_SECRET``. ``GET /`` tells what came so
far: the number of different ids, of requests, of wrong signatures, the first and the last moment, and the most in one
second.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import sys
import time
from collections import Counter

DONE = b"HTTP/1.1 204 No Content\r\n\r\n"


class Tally:
    """What came so far."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._ids: set[str] = set()
        self._moments: list[float] = []
        self._wrong = 0

    def add(self, headers: dict[str, str], body: bytes) -> None:
        """One request."""
        self._moments.append(time.time())
        self._ids.add(headers["webhook-id"])
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.digest(self._key, signed, hashlib.sha256)).decode()
        self._wrong += headers["webhook-signature"] != f"v1,{expected}"

    def document(self) -> bytes:
        """All of it, as JSON."""
        seconds = Counter(int(moment) for moment in self._moments)
        told = {
            "ids": len(self._ids),
            "requests": len(self._moments),
            "wrong": self._wrong,
            "first": min(self._moments, default=0.0),
            "last": max(self._moments, default=0.0),
            "most_in_a_second": max(seconds.values(), default=0),
        }
        return json.dumps(told).encode()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tally: Tally) -> None:
    """One connection, as long as the other side keeps it."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.rstrip().split("\r\n")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            if first.startswith("GET"):
                document = tally.document()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(document) + document)
            else:
                tally.add(headers, body)
                writer.write(DONE)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(port: int, secret: str) -> None:
    """Serve until somebody ends it."""
    tally = Tally(base64.b64decode(secret.removeprefix("whsec_")))
    server = await asyncio.start_server(lambda reader, writer: serve(reader, writer, tally), "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), os.environ["WEBHOOK_SECRET"]))
