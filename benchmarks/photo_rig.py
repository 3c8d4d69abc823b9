"""Photos through the whole queue: a worker with its real decoder, and the simulated GPU behind a real Triton."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from benchmarks.pace import wait_for
from benchmarks.rig import (
    REAL_APP,
    Program,
    bench_redis,
    bench_settings,
    running,
    settle,
    succeeded,
    wait_for_model,
    worker_program,
)
from benchmarks.simulated_gpu import MODEL, GpuCount, GpuTimes, gpu_count, gpu_triton
from tests.integration.triton_server import TritonServer
from tests.integration.workers import Client
from tidegate.settings import Settings
from worker.contract import ModelContract
from worker.images import ImageLimits, prepare
from worker.triton import Triton

SUBMIT_BATCH = 32
READ_BATCH = 500


@dataclass(frozen=True)
class PhotoPace:
    """What was seen while photos were classified.

    Attributes:
        rate: photos a second.
        seconds: how long it was watched.
        gpu: what the GPU did meanwhile.
        wrong: how many photos of the whole run did not get the right answer.
    """

    rate: float
    seconds: float
    gpu: GpuCount
    wrong: int


def read_contract_of(settings: Settings) -> ModelContract:
    """The simulated GPU's contract, as a worker reads it."""
    triton = Triton(settings)
    try:
        return triton.contract(MODEL)
    finally:
        triton.close()


def prepare_photo(photo: bytes, contract: ModelContract, row: NDArray[Any]) -> None:
    """Decode a photo as a worker does, into ``row``: uint8 ``[224, 224, 3]``, RGB."""
    assert contract.preprocessing is not None
    prepare(photo, plan=contract.preprocessing, limits=ImageLimits(), out=row)


def right_classes(photos: Sequence[bytes], contract: ModelContract) -> list[int]:
    """What the simulated GPU must answer: the red value of each prepared photo's centre."""
    row = contract.empty_batch(1)[0]
    middle = len(row) // 2
    classes = []
    for photo in photos:
        prepare_photo(photo, contract, row)
        classes.append(int(row[middle, middle, 0]))
    return classes


@dataclass
class PhotoRig:
    """Redis, Triton and photos; workers come and go.

    Attributes:
        expected: the right class of each photo.
    """

    client: Client
    triton: TritonServer
    photos: Sequence[bytes]
    folder: Path
    expected: list[int] = field(default_factory=list)

    def worker(self, children: int) -> Program:
        """A worker as it ships, with that many children."""
        return worker_program(self.client.settings, self.folder, app=REAL_APP, concurrency=children)

    def submit(self, count: int) -> list[str]:
        """Queue that many photos, the mix again and again."""
        ids: list[str] = []
        for start in range(0, count, SUBMIT_BATCH):
            numbers = range(start, min(start + SUBMIT_BATCH, count))
            ids += self.client.submit(MODEL, [self.photos[number % len(self.photos)] for number in numbers])
        settle(self.client.redis)
        return ids

    def classify(self, count: int, children: int) -> PhotoPace:
        """Queue photos, have one worker classify them, and watch from the first tenth to the last."""
        self.client.redis.flushall()
        ids = self.submit(count)
        with running(self.worker(children)):
            wait_for_model(self.client, MODEL)
            first, began, gpu = self._when(count // 10)
            last, ended, gpu_after = self._when(count - count // 10)
            wait_for(lambda: succeeded(self.client, MODEL) >= count, seconds=120, what="all photos are classified")
        return PhotoPace((last - first) / (ended - began), ended - began, gpu_after - gpu, self.wrong(ids))

    def _when(self, count: int) -> tuple[int, float, GpuCount]:
        wait_for(lambda: succeeded(self.client, MODEL) >= count, seconds=120, what=f"{count} photos are classified")
        return succeeded(self.client, MODEL), time.monotonic(), gpu_count(self.triton)

    def wrong(self, ids: Sequence[str]) -> int:
        """How many jobs do not name the right class first."""
        wrong = 0
        for start in range(0, len(ids), READ_BATCH):
            with self.client.redis.pipeline(transaction=False) as pipeline:
                for job_id in ids[start : start + READ_BATCH]:
                    pipeline.hget(f"{self.client.settings.key_prefix}job:{job_id}", "result")
                replies: list[Any] = pipeline.execute()
            for number, result in enumerate(replies, start):
                right = self.expected[number % len(self.expected)]
                wrong += result is None or json.loads(result)[0]["class_id"] != right
        return wrong


@contextmanager
def photo_rig(photos: Sequence[bytes], times: GpuTimes, folder: Path) -> Iterator[PhotoRig]:
    """Start Redis and Triton; the settings are those that ship."""
    with bench_redis(folder / "redis") as client, gpu_triton(times, folder) as triton:
        settings = bench_settings(client, triton_url=triton.grpc_url)
        expected = right_classes(photos, read_contract_of(settings))
        yield PhotoRig(Client(settings), triton, photos, folder, expected)
