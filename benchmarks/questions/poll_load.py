"""200 clients at a time that submit a photo and poll for its answer when they are told to, again and again.

One uvicorn process with a worker of no model behind it, and beside it, in turns, a bare FastAPI service that answers
the same clients with constants: what is left between the two is what the API does for a GET. Every answer is checked.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.http_client import ANSWER_TIMEOUT_SECONDS, multipart, post_bytes
from benchmarks.null_contract import MODEL
from benchmarks.photos import photo_mix
from benchmarks.results import Result, Series, percentile
from benchmarks.rig import (
    NULL_APP,
    bare_program,
    bench_redis,
    bench_settings,
    running,
    running_api,
    scratch,
    wait_for_model,
    worker_program,
)
from benchmarks.script import Scale, run_script
from tests.integration.workers import Client

CLIENTS = 200
SECONDS = 12.0
#: A JPEG of about 40 KB.
SIZE = ((400, 300),)
#: What the null model makes of the first byte of a JPEG.
CLASS_ID = 15


@dataclass
class Report:
    """What the clients of one service met.

    Attributes:
        posts_ms: how long each submission took that was answered well.
        gets_ms: how long each look took.
        jobs: that ended with the right answer.
        bad: answers that were none of the expected.
    """

    posts_ms: list[float] = field(default_factory=list)
    gets_ms: list[float] = field(default_factory=list)
    jobs: int = 0
    bad: int = 0


def measure(scale: Scale) -> Result:
    """Load the two services in turns."""
    (photo,) = photo_mix(SIZE, of_each=1)
    clients, seconds = scale.count(CLIENTS, least=20), scale.seconds(SECONDS, least=3)
    with scratch() as folder, ExitStack() as stack:
        services = {
            "tidegate": (stack.enter_context(running_tidegate(folder)), "/v1/jobs"),
            "bare route": (stack.enter_context(running(bare_program("bare_jobs", folder / "bare.log"))).url, "/jobs"),
        }
        reports = {name: Report() for name in services}
        for _ in range(scale.at_most(rounds=2).rounds):
            for name, (url, path) in services.items():
                submission = post_bytes(url, path, *multipart("image", [photo]))
                asyncio.run(load(url, submission, reports[name], clients=clients, seconds=seconds))
    series = [
        one
        for name, report in reports.items()
        for one in (
            Series(name, "ms/GET", report.gets_ms, len(report.gets_ms), report.bad),
            Series(name, "ms/POST", report.posts_ms, len(report.posts_ms)),
        )
    ]
    ours, bare = (percentile(reports[name].gets_ms, 0.99) for name in services)
    figures = {"poll_p99_ms": ours, "poll_p99_vs_bare": ours / bare}
    conditions = {"clients": clients, "image_bytes": len(photo), "jobs": reports["tidegate"].jobs}
    return Result("poll_load", series, figures, conditions)


@contextmanager
def running_tidegate(folder: Path) -> Iterator[str]:
    """The API, with a worker that answers at once; gives its address."""
    with ExitStack() as stack:
        settings = bench_settings(stack.enter_context(bench_redis(folder / "redis")))
        stack.enter_context(running(worker_program(settings, folder, app=NULL_APP, concurrency=1)))
        url = stack.enter_context(running_api(settings, folder))
        client = Client(settings)
        stack.callback(client.close)
        wait_for_model(client, MODEL)
        yield url


async def load(url: str, submission: bytes, report: Report, *, clients: int, seconds: float) -> None:
    """Have clients submit and poll, each on a connection of its own, and begin nothing new when the time is over."""
    until = time.monotonic() + seconds
    async with asyncio.timeout(seconds + ANSWER_TIMEOUT_SECONDS):
        await asyncio.gather(*(_client(url, submission, report, until) for _ in range(clients)))


async def _client(url: str, submission: bytes, report: Report, until: float) -> None:
    # People do not come all at the same moment.
    await asyncio.sleep(random.random())
    line = await _Line.open(url)
    try:
        while time.monotonic() < until:
            if await _job(line, submission, report):
                report.jobs += 1
            else:
                report.bad += 1
    finally:
        line.close()


async def _job(line: _Line, submission: bytes, report: Report) -> bool:
    """Submit once and poll to the end; False where an answer is none of the expected."""
    began = time.monotonic()
    status, pause_seconds, job = await line.ask(submission)
    if status != 202:
        return False
    report.posts_ms.append((time.monotonic() - began) * 1000)
    look = line.get(job["urls"]["get"])
    while job["status"] in ("queued", "running"):
        await asyncio.sleep(pause_seconds)
        began = time.monotonic()
        status, pause_seconds, job = await line.ask(look)
        if status != 200:
            return False
        report.gets_ms.append((time.monotonic() - began) * 1000)
    return job["status"] == "succeeded" and bool(job["result"]["predictions"][0]["class_id"] == CLASS_ID)


class _Line:
    """One kept connection, which costs the measuring process as little as can be."""

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> _Line:
        parts = urlsplit(url)
        return cls(parts.netloc, *await asyncio.open_connection(parts.hostname, parts.port))

    def get(self, path: str) -> bytes:
        """A GET as it goes over the wire."""
        return f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode()

    async def ask(self, request: bytes) -> tuple[int, float, Any]:
        """Status, seconds of Retry-After, and document."""
        self._writer.write(request)
        status, *lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().splitlines()
        headers = dict(line.split(": ", 1) for line in lines if line)
        body = await self._reader.readexactly(int(headers["content-length"]))
        return int(status.split()[1]), float(headers.get("retry-after", 0)), json.loads(body)

    def close(self) -> None:
        self._writer.close()


if __name__ == "__main__":
    run_script(measure)
