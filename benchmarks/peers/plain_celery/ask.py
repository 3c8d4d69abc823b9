"""Asks for one job after the other, polling each 10 ms, and prints the times in ms: ``ask.py COUNT IMAGE_BYTES``."""

from __future__ import annotations

import base64
import json
import os
import sys
import time

from benchmarks.peers.null_model import class_of, image_of
from benchmarks.peers.plain_celery.app import classify

POLL_SECONDS = 0.01
MOST_SECONDS = 30.0


def ask(number: int, tail: bytes) -> float:
    """From the submission to the answer, in milliseconds.

    Raises:
        ValueError: the answer is wrong.
        TimeoutError: there is none within 30 s.
    """
    started = time.monotonic()
    result = classify.delay(base64.b64encode(image_of(number, tail)).decode())
    while not result.ready():
        if time.monotonic() - started > MOST_SECONDS:
            raise TimeoutError("there is no answer")
        time.sleep(POLL_SECONDS)
    answer = result.get()
    taken = (time.monotonic() - started) * 1000
    if answer[0]["class_id"] != class_of(number):
        raise ValueError("the answer is that of another image")
    return taken


def main() -> None:
    """Ask, after a first time that is not counted."""
    count, size = int(sys.argv[1]), int(sys.argv[2])
    tail = os.urandom(size - 1)
    times = [ask(number, tail) for number in range(count + 1)]
    sys.stdout.write(json.dumps(times[1:]))


if __name__ == "__main__":
    main()
