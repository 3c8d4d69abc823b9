"""A mix of photos as people send them, 0.2 to 12 megapixels, made of the bundled ones.

Enlarged photos are smoother than real ones and decode faster, so grain is added until a file has about the size
that a camera's has. The same seed gives the same files.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.machine import ROOT

SOURCES = ("coffee.jpg", "flower.jpg", "palace.jpg", "rocket.jpg", "cat.png")
#: Width and height in pixels: web pictures, screens, and cameras of 2, 3, 8 and 12 megapixels.
SIZES = ((500, 375), (800, 600), (1200, 800), (1600, 1200), (2016, 1512), (3264, 2448), (4000, 3000))
SMALL_SIZES = SIZES[:1]
QUALITY = 88
GRAIN = 5.0
_SEED = 20_24


def photo_mix(sizes: tuple[tuple[int, int], ...] = SIZES, *, of_each: int = 2) -> list[bytes]:
    """JPEGs of these sizes in turns, ``of_each`` of each size, every one of another scene than its neighbours."""
    return list(_photos(sizes, of_each))


def _photos(sizes: tuple[tuple[int, int], ...], of_each: int) -> Iterator[bytes]:
    grain = np.random.default_rng(_SEED)
    scenes = [_scene(ROOT / "examples" / "images" / name) for name in SOURCES]
    for turn in range(of_each):
        for place, size in enumerate(sizes):
            yield _photo(scenes[(place + 2 * turn) % len(scenes)], size, grain)


def _scene(file: Path) -> Image.Image:
    with Image.open(file) as image:
        return image.convert("RGB")


def _photo(scene: Image.Image, size: tuple[int, int], grain: np.random.Generator) -> bytes:
    """The scene cut to the size's shape, scaled, and given grain."""
    scale = min(scene.width / size[0], scene.height / size[1])
    box = (0, 0, round(size[0] * scale), round(size[1] * scale))
    scaled = np.asarray(scene.resize(size, Image.Resampling.BICUBIC, box=box), np.int16)
    noise = (grain.standard_normal(scaled.shape[:2], np.float32) * GRAIN).astype(np.int16)
    pixels = np.clip(scaled + noise[:, :, np.newaxis], 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def megapixels(photo: bytes) -> float:
    """Of an encoded photo."""
    with Image.open(io.BytesIO(photo)) as image:
        return image.width * image.height / 1e6
