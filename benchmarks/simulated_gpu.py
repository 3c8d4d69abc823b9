"""A GPU without a GPU: ``base_ms`` a batch and ``per_image_ms`` an image, one batch at a time, and no processor time.

It comes in two forms with the same times. In the embedded Triton it is a Python model, to see the real way of the
images; Triton's own statistics tell its batches. As the behaviour of the stub of Triton it counts the requests in
flight, which Triton does not tell exactly.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from numpy.typing import NDArray

from tests.integration.stub_triton import Call
from tests.integration.triton_server import TritonServer, running_triton

MODEL = "simulated_gpu"
MAX_BATCH = 32
REPOSITORY = Path(__file__).parent / "model_repository"


@dataclass(frozen=True)
class GpuTimes:
    """How long a batch takes, in milliseconds."""

    base_ms: float = 5.0
    per_image_ms: float = 0.5

    def seconds(self, batches: int, images: int) -> float:
        """How long the GPU is busy with so many batches of so many images in all."""
        return (self.base_ms * batches + self.per_image_ms * images) / 1000

    @property
    def full_rate(self) -> float:
        """Images a second in full batches without a pause."""
        return MAX_BATCH / self.seconds(1, MAX_BATCH)


@dataclass(frozen=True)
class GpuCount:
    """What the GPU has done so far, in batches and images."""

    batches: int
    images: int

    def __sub__(self, earlier: GpuCount) -> GpuCount:
        return GpuCount(self.batches - earlier.batches, self.images - earlier.images)

    @property
    def fill(self) -> float:
        """How full the batches were, 0 to 1."""
        return self.images / (self.batches * MAX_BATCH)


@dataclass
class StubGpu:
    """The behaviour of a stub of Triton that answers as well and as late as a GPU would.

    Attributes:
        in_flight: requests that have arrived and are not answered.
        most_in_flight: the largest number of them at any moment.
        count: what was run.
    """

    times: GpuTimes
    in_flight: int = 0
    most_in_flight: int = 0
    count: GpuCount = field(default_factory=lambda: GpuCount(0, 0))
    _state: threading.Lock = field(default_factory=threading.Lock)
    _gpu: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, call: Call, _context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        """Take one batch's time, after those that came before."""
        with self._state:
            self.in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self.in_flight)
        with self._gpu:
            time.sleep(self.times.seconds(1, call.size))
        with self._state:
            self.in_flight -= 1
            self.count = GpuCount(self.count.batches + 1, self.count.images + call.size)
        return scores


@contextmanager
def gpu_triton(times: GpuTimes, folder: Path) -> Iterator[TritonServer]:
    """The embedded Triton with the simulated GPU as its one model."""
    repository = folder / "model_repository"
    shutil.copytree(REPOSITORY / MODEL, repository / MODEL)
    config = repository / MODEL / "config.pbtxt"
    text = config.read_text()
    for name, before in (("base_ms", GpuTimes.base_ms), ("per_image_ms", GpuTimes.per_image_ms)):
        told = 'key: "{}" value: {{ string_value: "{}" }}'
        text = text.replace(told.format(name, before), told.format(name, getattr(times, name)))
    config.write_text(text)
    with running_triton(repository) as server:
        yield server


def gpu_count(server: TritonServer) -> GpuCount:
    """What Triton's statistics say that the model has run."""
    answer = httpx.get(f"{server.http_url}/v2/models/{MODEL}/stats", timeout=5, trust_env=False).raise_for_status()
    statistics = answer.json()["model_stats"][0]
    return GpuCount(int(statistics["execution_count"]), int(statistics["inference_count"]))
