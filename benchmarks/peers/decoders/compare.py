"""Decodes photos with every library: ``compare.py FOLDER ROUNDS``, where the folder holds ``0.jpg``, ``1.jpg`` ...

Each makes the same picture: shorter side to 256 by a bicubic filter, then the 224x224 in the centre. A JPEG may be
decoded at a smaller scale that leaves at least ``margin`` pixels for each one of the picture. Writes the pictures
to ``<library>-<margin>.npy`` and prints as JSON the milliseconds of processor time a photo, the least of all rounds.
PyTurboJPEG takes libturbojpeg 3 from the system and is left out where there is none; simplejpeg carries its own.
"""

from __future__ import annotations

import functools
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyvips
import simplejpeg
import turbojpeg
from numpy.typing import NDArray
from PIL import Image

SIDE, CROP = 256, 224
SHRINKS = (8, 4, 2, 1)
MARGINS = (4, 1)

Decode = Callable[[bytes, int], NDArray[np.uint8]]


def shrink(width: int, height: int, margin: int) -> int:
    """The most that both sides may be divided by."""
    return next((factor for factor in SHRINKS if min(width, height) / factor >= margin * SIDE), 1)


def fit(pixels: NDArray[np.uint8] | Image.Image) -> NDArray[np.uint8]:
    """Resize and cut with Pillow: what is left to do when a library only decodes."""
    image = Image.fromarray(pixels) if isinstance(pixels, np.ndarray) else pixels
    scale = SIDE / min(image.size)
    image = image.resize((int(image.width * scale), int(image.height * scale)), Image.Resampling.BICUBIC)
    left, top = round((image.width - CROP) / 2), round((image.height - CROP) / 2)
    return np.asarray(image.crop((left, top, left + CROP, top + CROP)))


def by_pillow(photo: bytes, margin: int) -> NDArray[np.uint8]:
    """Pillow's ``draft``."""
    image = Image.open(io.BytesIO(photo))
    factor = shrink(*image.size, margin)
    if factor > 1:
        image.draft(None, (image.width // factor, image.height // factor))
    return fit(image.convert("RGB"))


def by_simplejpeg(photo: bytes, margin: int) -> NDArray[np.uint8]:
    """``min_height`` and ``min_width`` choose the scale."""
    height, width, *_ = simplejpeg.decode_jpeg_header(photo)
    factor = shrink(width, height, margin)
    least = {"min_height": height // factor, "min_width": width // factor} if factor > 1 else {}
    return fit(simplejpeg.decode_jpeg(photo, **least))


@functools.cache
def turbo() -> turbojpeg.TurboJPEG:
    """The system's libjpeg-turbo; RuntimeError where there is none."""
    return turbojpeg.TurboJPEG()


def by_turbojpeg(photo: bytes, margin: int) -> NDArray[np.uint8]:
    """libjpeg-turbo with its scaling factors."""
    width, height, *_ = turbo().decode_header(photo)
    factor = shrink(width, height, margin)
    return fit(turbo().decode(photo, pixel_format=turbojpeg.TJPF_RGB, scaling_factor=(1, factor)))


def by_opencv(photo: bytes, margin: int) -> NDArray[np.uint8]:
    """OpenCV's reduced decoding; its own resize by area, since its bicubic one does not antialias."""
    with Image.open(io.BytesIO(photo)) as header:
        factor = shrink(*header.size, margin)
    flags = {8: cv2.IMREAD_REDUCED_COLOR_8, 4: cv2.IMREAD_REDUCED_COLOR_4, 2: cv2.IMREAD_REDUCED_COLOR_2}
    pixels: Any = cv2.imdecode(np.frombuffer(photo, np.uint8), flags.get(factor, cv2.IMREAD_COLOR))
    scale = SIDE / min(pixels.shape[:2])
    size = (int(pixels.shape[1] * scale), int(pixels.shape[0] * scale))
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    left, top = round((size[0] - CROP) / 2), round((size[1] - CROP) / 2)
    return np.asarray(small[top : top + CROP, left : left + CROP, ::-1], np.uint8)


def by_pyvips(photo: bytes, margin: int) -> NDArray[np.uint8]:
    """Libvips's thumbnail, which chooses the scale itself: it leaves at least two pixels for one."""
    del margin
    header = pyvips.Image.new_from_buffer(photo, "")
    scale = SIDE / min(header.width, header.height)
    size = (int(header.width * scale), int(header.height * scale))
    image = pyvips.Image.thumbnail_buffer(photo, size[0], height=size[1], size="force")
    left, top = round((size[0] - CROP) / 2), round((size[1] - CROP) / 2)
    return np.asarray(image.crop(left, top, CROP, CROP).numpy(), np.uint8)


LIBRARIES: dict[str, Decode] = {
    "pillow": by_pillow,
    "simplejpeg": by_simplejpeg,
    "turbojpeg": by_turbojpeg,
    "opencv": by_opencv,
    "pyvips": by_pyvips,
}


def least_ms(decode: Decode, photo: bytes, margin: int, rounds: int) -> float:
    """Milliseconds of processor time that one photo takes, whichever threads spend them."""
    times = []
    for _ in range(rounds):
        started = time.process_time()
        decode(photo, margin)
        times.append(time.process_time() - started)
    return min(times) * 1000


def libraries() -> dict[str, Decode]:
    """Those that work here."""
    try:
        turbo()
    except RuntimeError:
        return {name: decode for name, decode in LIBRARIES.items() if decode is not by_turbojpeg}
    return LIBRARIES


def main() -> None:
    """Decode everything with everything, on one core."""
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    cv2.setNumThreads(1)
    pyvips.cache_set_max(0)
    photos = [file.read_bytes() for file in sorted(folder.glob("*.jpg"), key=lambda file: int(file.stem))]
    found: dict[str, list[float]] = {}
    for name, decode in libraries().items():
        for margin in MARGINS:
            pictures = np.stack([decode(photo, margin) for photo in photos])
            np.save(folder / f"{name}-{margin}.npy", pictures)
            found[f"{name}-{margin}"] = [least_ms(decode, photo, margin, rounds) for photo in photos]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
