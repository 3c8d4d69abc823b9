"""Whether another JPEG decoder would pay: milliseconds of one core a photo, and how far its pictures are off.

The measure of both is a full decode and resize with Pillow, without any smaller scale. ``faithful`` and ``fast`` are
the worker's own decoder with all its checks, colours and the tensor; the others only decode and resize.
"""

from __future__ import annotations

import dataclasses
import io
import json
import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.environments import Environment
from benchmarks.photos import SIZES, photo_mix
from benchmarks.results import Result, Series
from benchmarks.rig import scratch
from benchmarks.script import Scale, run_script
from worker.contract import Fidelity, Interpolation, Preprocessing, ShorterSide
from worker.images import ImageLimits, prepare

ROUNDS = 2
PLAN = Preprocessing(
    height=224, width=224, layout="NHWC", framing=ShorterSide(256, 224, 224), interpolation=Interpolation.BICUBIC
)
#: The libraries' names for the worker's fidelities: pixels that must be left for each one of the picture.
MARGINS = {"4": "faithful", "1": "fast"}

Pictures = NDArray[np.uint8]


def measure(scale: Scale) -> Result:
    """Every library and the worker's own decoder on one photo of each size."""
    rounds = scale.count(ROUNDS)
    peers = Environment("decoders").make()
    photos = photo_mix(SIZES, of_each=1)
    with scratch() as folder:
        for number, photo in enumerate(photos):
            (folder / f"{number}.jpg").write_bytes(photo)
        printed = peers.run("-m", "benchmarks.peers.decoders.compare", str(folder), str(rounds))
        times: dict[str, list[float]] = json.loads(printed)
        pictures = {name: np.load(folder / f"{name}.npy") for name in times}
    exact = full_decode(photos)
    ours = {f"ours-{margin}": own_decoder(photos, Fidelity(name), rounds) for margin, name in MARGINS.items()}
    times = {name: taken for name, (taken, _) in ours.items()} | times
    pictures = {name: made for name, (_, made) in ours.items()} | pictures
    series = [Series(_title(name), "CPU ms/photo", taken, len(taken)) for name, taken in times.items()]
    for name, made in pictures.items():
        off = np.abs(made.astype(np.int16) - exact)
        series.append(Series(_title(name), "worst difference, of 255", [float(off.max())], len(photos)))
        series.append(Series(_title(name), "mean difference, of 255", [float(off.mean())], len(photos)))
    return Result("decoders", series, _figures(times), _conditions(), {"decoders": peers.versions()})


def own_decoder(photos: Sequence[bytes], fidelity: Fidelity, rounds: int) -> tuple[list[float], Pictures]:
    """Milliseconds of processor time a photo, the least of all rounds, and the pictures."""
    plan = dataclasses.replace(PLAN, fidelity=fidelity)
    pictures = np.empty((len(photos), PLAN.height, PLAN.width, 3), np.uint8)
    times = []
    for photo, picture in zip(photos, pictures, strict=True):
        taken = []
        for _ in range(rounds):
            started = time.process_time()
            prepare(photo, plan=plan, limits=ImageLimits(), out=picture)
            taken.append(time.process_time() - started)
        times.append(min(taken) * 1000)
    return times, pictures


def full_decode(photos: Sequence[bytes]) -> Pictures:
    """The pictures by Pillow alone and at full scale."""
    return np.stack([_full_picture(photo) for photo in photos])


def _full_picture(photo: bytes) -> Pictures:
    with Image.open(io.BytesIO(photo)) as image:
        scale = 256 / min(image.size)
        size = (int(image.width * scale), int(image.height * scale))
        small = image.convert("RGB").resize(size, Image.Resampling.BICUBIC)
    left, top = round((size[0] - 224) / 2), round((size[1] - 224) / 2)
    return np.asarray(small.crop((left, top, left + 224, top + 224)))


def _title(name: str) -> str:
    library, _, margin = name.rpartition("-")
    return f"{library}, {MARGINS[margin]}"


def _figures(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Time of all photos together, of each library beside ours at the same fidelity."""
    return {
        f"{name.replace('-', '_margin_')}_vs_ours": sum(taken) / sum(times[f"ours-{name.rpartition('-')[2]}"])
        for name, taken in times.items()
        if not name.startswith("ours")
    }


def _conditions() -> dict[str, object]:
    return {"sizes": [f"{width}x{height}" for width, height in SIZES], "picture": "shorter side 256, bicubic, 224x224"}


if __name__ == "__main__":
    run_script(measure)
