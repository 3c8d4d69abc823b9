"""The broker and its one task."""

from __future__ import annotations

import base64
import os
from typing import Any

from taskiq_redis import ListQueueBroker, RedisAsyncResultBackend

from benchmarks.peers.null_model import predict

REDIS_URL = os.environ["REDIS_URL"]

results: Any = RedisAsyncResultBackend(REDIS_URL, result_ex_time=3600)
broker = ListQueueBroker(REDIS_URL).with_result_backend(results)


@broker.task(task_name="classify")  # type: ignore[untyped-decorator]  # not installed where this is checked
async def classify(image: str) -> list[dict[str, Any]]:
    """Classify one image, given in base64."""
    return predict(base64.b64decode(image))
