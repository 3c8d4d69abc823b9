"""The task, which is given many requests at a time and stores their results itself."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

from celery import Celery
from celery_batches import Batches

from benchmarks.peers.null_model import predict

BATCH = 32
REDIS_URL = os.environ["REDIS_URL"]

app = Celery("peer", broker=REDIS_URL, backend=REDIS_URL)
# Its documentation asks for a prefetch of at least one batch; Celery's default of 4 would never fill one.
app.conf.worker_prefetch_multiplier = 2 * BATCH


@app.task(name="classify", base=Batches, flush_every=BATCH, flush_interval=0.1)  # type: ignore[untyped-decorator]
def classify(requests: Sequence[Any]) -> None:
    """Classify the images of a batch of requests."""
    for request in requests:
        result = predict(base64.b64decode(request.args[0]))
        app.backend.mark_as_done(request.id, result, request=request)
