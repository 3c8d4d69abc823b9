"""Puts jobs into the queue: ``fill.py COUNT IMAGE_BYTES``. Their ids are ``job-0``, ``job-1`` and so on."""

from __future__ import annotations

import base64
import os
import sys

from benchmarks.peers.null_model import image_of
from benchmarks.peers.plain_celery.app import classify


def main() -> None:
    """Publish one message an image."""
    count, size = int(sys.argv[1]), int(sys.argv[2])
    tail = os.urandom(size - 1)
    for number in range(count):
        image = base64.b64encode(image_of(number, tail)).decode()
        classify.apply_async(args=[image], task_id=f"job-{number}")


if __name__ == "__main__":
    main()
