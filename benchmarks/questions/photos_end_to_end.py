"""What part of the decoder's own speed is left end to end, on a mix of photos of 0.2 to 12 megapixels.

The decoder alone runs in as many processes as there are cores, and nothing else runs. End to end, the same cores
also carry Redis, the worker's main process, Triton and the way between them; the GPU is simulated.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.photo_rig import PhotoPace, photo_rig, prepare_photo, read_contract_of
from benchmarks.photos import SIZES, megapixels, photo_mix
from benchmarks.results import Result, Series
from benchmarks.rig import scratch
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import GpuTimes
from tidegate.local.options import StackOptions
from worker.contract import ModelContract

PHOTOS = 500
DECODE_SECONDS = 6.0


def measure(scale: Scale) -> Result:
    """The decoder alone and the whole way, in turns."""
    cores = len(os.sched_getaffinity(0))
    photos = photo_mix()
    count = scale.count(PHOTOS, least=200)
    seconds = scale.seconds(DECODE_SECONDS, least=2)
    alone: list[float] = []
    through: list[PhotoPace] = []
    with scratch() as folder, photo_rig(photos, GpuTimes(), folder) as rig:
        contract = read_contract_of(rig.client.settings)
        for _ in range(scale.at_most(rounds=2).rounds):
            alone.append(decoder_rate(photos, contract, cores, seconds))
            through.append(rig.classify(count, children=StackOptions().concurrency))
    series = [
        Series("decoder alone", "photos/s", alone, round(sum(alone) * seconds)),
        Series(
            "end to end", "photos/s", [p.rate for p in through], len(through) * count, sum(p.wrong for p in through)
        ),
    ]
    return Result(
        "photos_end_to_end",
        series,
        {"decode_efficiency": series[1].median / series[0].median},
        conditions={
            "processes": cores,
            "children": StackOptions().concurrency,
            "sizes": [f"{width}x{height}" for width, height in SIZES],
            "megapixels_mean": round(sum(map(megapixels, photos)) / len(photos), 2),
            "kilobytes_mean": round(sum(map(len, photos)) / len(photos) / 1000),
        },
    )


def decoder_rate(photos: Sequence[bytes], contract: ModelContract, processes: int, seconds: float) -> float:
    """Photos a second that the worker's decoder prepares in so many processes at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Manager().Barrier(processes)
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        futures = [pool.submit(_decode, list(photos), contract, seconds, barrier) for _ in range(processes)]
        return sum(future.result(timeout=seconds + 60) for future in futures)


def _decode(photos: list[bytes], contract: ModelContract, seconds: float, barrier: Any) -> float:
    rows = contract.empty_batch(len(photos))
    barrier.wait(60)
    started, done = time.monotonic(), 0
    # The mix as a whole, since its photos differ a hundredfold.
    while time.monotonic() - started < seconds:
        for row, photo in zip(rows, photos, strict=True):
            prepare_photo(photo, contract, row)
        done += len(photos)
    return done / (time.monotonic() - started)


if __name__ == "__main__":
    run_script(measure)
