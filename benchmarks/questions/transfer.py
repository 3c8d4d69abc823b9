"""What shared memory saves on the way of a batch to Triton, beside the same batch in a gRPC message.

The worker's own client, a real Triton, and a model that takes no time. Each image is copied into the room that the
client gives for it, as a decoder would write it there.
"""

from __future__ import annotations

import time
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.results import Result, Series
from benchmarks.rig import scratch
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import MODEL, GpuTimes, gpu_triton
from tidegate.settings import load_settings
from worker.contract import ModelContract
from worker.triton import Triton

SIZES = (8, 32)
SECONDS = 1.0
WAYS: dict[str, Literal["on", "off"]] = {"shared memory": "on", "messages": "off"}


def measure(scale: Scale) -> Result:
    """Each way and batch size in turns."""
    found: dict[tuple[str, int], list[tuple[float, float, int]]] = {(way, size): [] for way in WAYS for size in SIZES}
    wrong = dict.fromkeys(found, 0)
    with scratch() as folder, gpu_triton(GpuTimes(0.0, 0.0), folder) as server:
        for _ in range(scale.rounds):
            for (way, size), runs in found.items():
                rate, cost, images, bad = send_batches(server.grpc_url, WAYS[way], size, scale.seconds(SECONDS))
                runs.append((rate, cost, images))
                wrong[way, size] += bad
    series = []
    for (way, size), runs in found.items():
        name, count = f"{way}, batches of {size}", sum(images for *_, images in runs)
        series.append(Series(name, "images/s", [rate for rate, *_ in runs], count, wrong[way, size]))
        series.append(Series(name, "client CPU µs/image", [cost for _, cost, _ in runs], count))
    median = {(one.name, one.quantity): one.median for one in series}
    figures = {
        f"shared_memory_vs_messages_{size}": median[f"shared memory, batches of {size}", "images/s"]
        / median[f"messages, batches of {size}", "images/s"]
        for size in SIZES
    }
    return Result("transfer", series, figures, {"image": "uint8 224x224x3"})


def send_batches(
    grpc_url: str, shared_memory: Literal["on", "off"], size: int, seconds: float
) -> tuple[float, float, int, int]:
    """Images a second, microseconds of the client's processor time an image, images, and wrong answers."""
    triton = Triton(load_settings({}, triton_url=grpc_url, triton_shm=shared_memory))
    contract = triton.contract(MODEL)
    images = np.random.default_rng(size).integers(0, 256, (size, *contract.image_shape), np.uint8)
    middle = images.shape[1] // 2
    expected = images[:, middle, middle, 0]
    try:
        _send(triton, contract, images)
        started, used, batches, wrong = time.monotonic(), time.process_time(), 0, 0
        while time.monotonic() - started < seconds:
            wrong += int((_send(triton, contract, images).argmax(axis=1) != expected).sum())
            batches += 1
        taken, cost = time.monotonic() - started, time.process_time() - used
    finally:
        triton.close()
    count = batches * size
    return count / taken, cost / count * 1e6, count, wrong


def _send(triton: Triton, contract: ModelContract, images: NDArray[np.uint8]) -> NDArray[np.float32]:
    room = triton.room(contract, len(images))
    for row, image in zip(room, images, strict=True):
        row[...] = image
    scores, _ = triton.infer(contract, room)
    return scores


if __name__ == "__main__":
    run_script(measure)
