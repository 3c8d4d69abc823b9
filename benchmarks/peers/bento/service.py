"""A service with one task, whose model sleeps as long as one image would take."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import bentoml

from benchmarks.peers.null_model import MODEL_SECONDS, predict


@bentoml.service(traffic={"concurrency": 32, "timeout": 300})
class Classifier:
    """One worker process, as by default."""

    @bentoml.task  # type: ignore[untyped-decorator]  # not installed where this is checked
    def classify(self, image: Path) -> list[dict[str, Any]]:
        """Classify one uploaded image."""
        data = image.read_bytes()
        time.sleep(MODEL_SECONDS)
        return predict(data)
