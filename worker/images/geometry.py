"""Which part of an image becomes which part of the tensor: arithmetic on sizes, without a pixel.

A crop of a resized image is computed as one resize of a box of the source, which gives the same pixels and
costs only what is seen: a panorama of 65,500x1 needs no intermediate image of 16 million columns.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from worker.contract import Framing, Pad, ShorterSide, Squash

Size = tuple[int, int]
"""Width and height in pixels, as Pillow orders them."""
Box = tuple[float, float, float, float]
"""Left, top, right and bottom in pixels; fractions allowed."""

JPEG_SHRINKS = (8, 4, 2)
"""What a JPEG decoder can divide both sides by at no cost. Source: libjpeg's ``scale_denom``."""


@dataclass(frozen=True)
class Placement:
    """One resize.

    Attributes:
        box: the part of the upright image that is seen.
        size: what it is resized to.
        offset: left and top of that in the tensor.
    """

    box: Box
    size: Size
    offset: tuple[int, int] = (0, 0)

    def scaled_down(self, factor: int) -> Placement:
        """The same resize, of an image whose sides were divided by ``factor``."""
        left, top, right, bottom = (edge / factor for edge in self.box)
        return dataclasses.replace(self, box=(left, top, right, bottom))

    def shrink(self, margin: float) -> int:
        """The most that both sides of the image may be divided by before this resize.

        Args:
            margin: pixels that must be left in each direction for each pixel of the result.

        Returns:
            1 or one of :data:`JPEG_SHRINKS`.
        """
        left, top, right, bottom = self.box
        spare = min((right - left) / self.size[0], (bottom - top) / self.size[1]) / margin
        return next((factor for factor in JPEG_SHRINKS if factor <= spare), 1)


def place(framing: Framing, image: Size, tensor: Size) -> Placement:
    """Fit an upright image to a tensor."""
    match framing:
        case Squash():
            return _squash(framing, image, tensor)
        case ShorterSide():
            return _shorter_side(framing, image, tensor)
        case Pad():
            return _pad(image, tensor)


def _squash(framing: Squash, image: Size, tensor: Size) -> Placement:
    width, height = image
    left, top = (width * (1 - framing.fraction) / 2, height * (1 - framing.fraction) / 2)
    return Placement(box=(left, top, width - left, height - top), size=tensor)


def _shorter_side(framing: ShorterSide, image: Size, tensor: Size) -> Placement:
    """Source: ``_compute_resized_output_size`` and ``center_crop`` of ``torchvision/transforms/functional.py``.

    Their roundings are kept: the longer side is cut down to a whole number, and the crop's offset is rounded
    half to even.
    """
    width, height = image
    longer_side = int(framing.side * max(image) / min(image))
    resized_width, resized_height = (framing.side, longer_side) if width <= height else (longer_side, framing.side)
    left = round((resized_width - framing.crop_width) / 2)
    top = round((resized_height - framing.crop_height) / 2)
    box = (
        left * width / resized_width,
        top * height / resized_height,
        (left + framing.crop_width) * width / resized_width,
        (top + framing.crop_height) * height / resized_height,
    )
    return Placement(box=box, size=tensor)


def _pad(image: Size, tensor: Size) -> Placement:
    scale = min(tensor[0] / image[0], tensor[1] / image[1])
    size = (max(1, round(image[0] * scale)), max(1, round(image[1] * scale)))
    offset = ((tensor[0] - size[0]) // 2, (tensor[1] - size[1]) // 2)
    return Placement(box=(0, 0, *image), size=size, offset=offset)
