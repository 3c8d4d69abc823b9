"""Pictures to test with, made by formula: the same everywhere, and nobody's property."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

QUADRANTS = ((220, 30, 30), (30, 200, 40), (40, 60, 210), (235, 215, 40))
"""Colours of :func:`quadrants`: top left, top right, bottom left, bottom right."""

ODD_SIZES = (
    (225, 224), (224, 225), (224, 224), (256, 256), (100, 3000), (3000, 100), (333, 500), (500, 333),
    (640, 481), (481, 640), (799, 601), (257, 1000), (1000, 257), (50, 71), (71, 50), (33, 33), (1, 1),
    (37, 36), (1023, 769), (120, 777),
)  # fmt: skip
"""Widths and heights that go wrong where roundings do."""


def quadrants(width: int = 64, height: int = 48) -> Image.Image:
    """Four flat quadrants, which tell how an image was turned, and which channel is which."""
    image = Image.new("RGB", (width, height))
    for index, color in enumerate(QUADRANTS):
        left, top = width // 2 * (index % 2), height // 2 * (index // 2)
        image.paste(color, (left, top, left + width // 2, top + height // 2))
    return image


def texture(width: int, height: int) -> NDArray[np.uint8]:
    """Waves of many lengths in three different channels, with hard edges, as uint8 ``[height, width, 3]``."""
    y, x = np.mgrid[0:height, 0:width].astype(np.float64)
    channels = [
        np.sin(x / 2.3 + y / 17) + np.cos(y / 3.1) + (x // 13 + y // 9) % 2,
        np.sin(x * y / 97) + np.cos((x + y) / 5.7) + (x // 21) % 2,
        np.cos(x / 29 - y / 1.9) + np.sin(y / 7.3) + (y // 17) % 2,
    ]
    image: NDArray[np.uint8] = np.clip(np.rint((np.stack(channels, axis=-1) + 2) * 51), 0, 255).astype(np.uint8)
    return image
