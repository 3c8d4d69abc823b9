"""Makes ``torchvision.npz``: what torchvision's own transforms make of the odd sizes.

Run it where torch and torchvision are installed, from the root of the project; tests only read the result:

    python -m tests.images.reference.make
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import PIL
import torchvision
from numpy.typing import NDArray
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, PILToTensor, Resize

from tests.images.pictures import ODD_SIZES, texture

TARGET = Path(__file__).parent / "torchvision.npz"


def main() -> None:
    """Write one array ``[3, crop, crop]`` for each size, filter and resize."""
    arrays: dict[str, NDArray[np.uint8]] = {}
    for width, height in ODD_SIZES:
        for interpolation in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC):
            for side, crop in ((36, 32), (32, 32)):
                transform = Compose([Resize(side, interpolation=interpolation), CenterCrop(crop), PILToTensor()])
                name = f"{width}x{height} {interpolation.value} shorter:{side} {crop}"
                arrays[name] = transform(Image.fromarray(texture(width, height))).numpy()
    versions = np.array([f"torchvision {torchvision.__version__}", f"pillow {PIL.__version__}"])
    np.savez_compressed(TARGET, versions=versions, **arrays)


if __name__ == "__main__":
    main()
