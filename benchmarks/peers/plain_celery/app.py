"""The task. ``ACKS_LATE=1`` acknowledges a message when its task is done, so that a killed worker loses none."""

from __future__ import annotations

import base64
import os
from typing import Any

from celery import Celery

from benchmarks.peers.null_model import predict

REDIS_URL = os.environ["REDIS_URL"]

app = Celery("peer", broker=REDIS_URL, backend=REDIS_URL)


@app.task(name="classify", acks_late=os.environ.get("ACKS_LATE") == "1")  # type: ignore[untyped-decorator]  # untyped
def classify(image: str) -> list[dict[str, Any]]:
    """Classify one image, given in base64."""
    return predict(base64.b64decode(image))
