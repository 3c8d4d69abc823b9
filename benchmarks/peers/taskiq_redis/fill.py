"""Puts jobs into the queue: ``fill.py COUNT IMAGE_BYTES``. Their ids are ``job-0``, ``job-1`` and so on."""

from __future__ import annotations

import asyncio
import base64
import os
import sys

from benchmarks.peers.null_model import image_of
from benchmarks.peers.taskiq_redis.app import broker, classify


async def fill(count: int, size: int) -> None:
    """Publish one message an image."""
    tail = os.urandom(size - 1)
    await broker.startup()
    for number in range(count):
        image = base64.b64encode(image_of(number, tail)).decode()
        await classify.kicker().with_task_id(f"job-{number}").kiq(image)
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(fill(int(sys.argv[1]), int(sys.argv[2])))
