"""Which part of an image becomes which part of the tensor: arithmetic on sizes, without a pixel."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from worker.contract import Fidelity, Pad, Preprocessing, ShorterSide, Squash

Size = tuple[int, int]
"""Width and height in pixels, as Pillow orders them."""

JPEG_SHRINKS = (8, 4, 2)
"""What a JPEG decoder can divide both sides by at no cost. Source: ``scale_denom`` in libjpeg.txt."""

MAX_WHOLE_PIXELS = 4_000_000
"""The largest image that is resized as a whole to be cut: it bounds what a panorama may cost to some 50 ms."""


@dataclass(frozen=True)
class Placement:
    """One resize and one cut, of an image that stands upright.

    Attributes:
        box: left, top, right and bottom of the part that is resized, in pixels; fractions allowed.
        size: what it is resized to.
        corner: left and top of the tensor in the result; negative where black is added around it.
    """

    box: tuple[float, float, float, float]
    size: Size
    corner: tuple[int, int] = (0, 0)

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

    def scaled_down(self, factor: int) -> Placement:
        """The same, of an image whose sides were divided by ``factor``."""
        left, top, right, bottom = (edge / factor for edge in self.box)
        return dataclasses.replace(self, box=(left, top, right, bottom))


def place(plan: Preprocessing, image: Size) -> Placement:
    """Fit an upright image of this size to the tensor of the plan."""
    tensor = (plan.width, plan.height)
    match plan.framing:
        case Squash(fraction=fraction):
            return _squash(fraction, image, tensor)
        case ShorterSide() as framing:
            return _shorter_side(framing, image, tensor, whole=plan.fidelity is Fidelity.FAITHFUL)
        case Pad():
            return _pad(image, tensor)


def _squash(fraction: float, image: Size, tensor: Size) -> Placement:
    width, height = image
    left, top = width * (1 - fraction) / 2, height * (1 - fraction) / 2
    return Placement(box=(left, top, width - left, height - top), size=tensor)


def _shorter_side(framing: ShorterSide, image: Size, tensor: Size, *, whole: bool) -> Placement:
    """Resize all and cut, or resize what is seen.

    The first is what training does. The second is cheaper, and differs by the rounding of the box and where
    Pillow passes over rows and columns in another order.

    Source: ``_compute_resized_output_size`` and ``center_crop`` in torchvision/transforms/functional.py. Their
    roundings are kept: the longer side is cut down to a whole number, the corner is rounded half to even.
    """
    width, height = image
    longer = int(framing.side * max(image) / min(image))
    resized = (framing.side, longer) if width <= height else (longer, framing.side)
    crop = (framing.crop_width, framing.crop_height)
    left, top = round((resized[0] - crop[0]) / 2), round((resized[1] - crop[1]) / 2)
    if whole and crop == tensor and resized[0] * resized[1] <= MAX_WHOLE_PIXELS:
        return Placement(box=(0, 0, width, height), size=resized, corner=(left, top))
    box = (
        left * width / resized[0],
        top * height / resized[1],
        (left + crop[0]) * width / resized[0],
        (top + crop[1]) * height / resized[1],
    )
    return Placement(box=box, size=tensor)


def _pad(image: Size, tensor: Size) -> Placement:
    scale = min(tensor[0] / image[0], tensor[1] / image[1])
    size = (max(1, round(image[0] * scale)), max(1, round(image[1] * scale)))
    corner = (-((tensor[0] - size[0]) // 2), -((tensor[1] - size[1]) // 2))
    return Placement(box=(0, 0, *image), size=size, corner=corner)
