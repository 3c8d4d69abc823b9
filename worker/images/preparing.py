"""One encoded image into its row of the batch: the steps in their order, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

from tidegate.formats import ImageFormat, ImageLimits, check_encoded
from worker.contract import Interpolation, Preprocessing
from worker.images.colors import ColorRule, flatten
from worker.images.geometry import Placement, place
from worker.images.opening import (
    count_frames,
    decoder_errors,
    open_image,
    orientation,
    turn_upright,
    upright_size,
)
from worker.images.screening import screen
from worker.images.tensors import write_tensor

_FILTERS = {
    Interpolation.NEAREST: Image.Resampling.NEAREST,
    Interpolation.BOX: Image.Resampling.BOX,
    Interpolation.BILINEAR: Image.Resampling.BILINEAR,
    Interpolation.HAMMING: Image.Resampling.HAMMING,
    Interpolation.BICUBIC: Image.Resampling.BICUBIC,
    Interpolation.LANCZOS: Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class ImageFacts:
    """What a header says of an image.

    Attributes:
        format: told by the bytes.
        width: in pixels, before any turn that its EXIF asks for.
        height: likewise.
        frames: how many there are, of which only the first counts; None for a GIF or TIFF, whose header
            does not say.
    """

    format: ImageFormat
    width: int
    height: int
    frames: int | None


def prepare(data: bytes, *, plan: Preprocessing, limits: ImageLimits, out: NDArray[Any]) -> ImageFacts:
    """Decode one image and write it, preprocessed, into its place in the batch.

    Args:
        data: the encoded image, of any format that is accepted and from anybody.
        plan: how the model wants its images.
        limits: judged before a pixel is decoded.
        out: ``[height, width, 3]`` or ``[3, height, width]`` by the plan's layout, of the model's type; any
            view, such as one row of the batch. Undefined after an error.

    Raises:
        UnsupportedFormat: it is no image in an accepted format.
        ImageTooLarge: it is beyond the limits.
        ImageCorrupt: it is empty, broken or truncated.
    """
    known = judge_bytes(data, limits)
    with decoder_errors(known):
        image = open_image(data, known, limits)
        facts = _facts(image, known)
        upright, placement = _load(image, known, plan)
        pixels = fit(flatten(upright), placement, plan, ColorRule.of(image, known))
    write_tensor(pixels, plan=plan, out=out)
    return facts


def judge_bytes(data: bytes, limits: ImageLimits) -> ImageFormat:
    """What format it is, once its header and structure let a decoder near it.

    Raises:
        UnsupportedFormat, ImageTooLarge, ImageCorrupt: as for :func:`inspect`.
    """
    known = check_encoded(data, limits)
    screen(data, known)
    return known


def inspect(data: bytes, *, limits: ImageLimits) -> ImageFacts:
    """Judge an image by its header alone, for a model that decodes images itself.

    Raises:
        UnsupportedFormat: it is no image in an accepted format.
        ImageTooLarge: it is beyond the limits.
        ImageCorrupt: it is empty, or its header is broken.
    """
    known = judge_bytes(data, limits)
    with decoder_errors(known):
        return _facts(open_image(data, known, limits), known)


def _facts(image: ImageFile.ImageFile, known: ImageFormat) -> ImageFacts:
    width, height = image.size
    return ImageFacts(format=known, width=width, height=height, frames=count_frames(image, known))


def fit(flat: Image.Image, placement: Placement, plan: Preprocessing, rule: ColorRule) -> NDArray[np.uint8]:
    """The pixels of the tensor: uint8 ``[height, width, 3]``, RGB, of an image that is upright and flat."""
    resized = flat.resize(placement.size, _FILTERS[plan.interpolation], box=placement.box)
    # Colours are managed after the resize, on a fraction of the pixels.
    colored = rule.apply(resized)
    left, top = placement.corner
    # Where the cut reaches beyond the image, Pillow adds black.
    return np.asarray(colored.crop((left, top, left + plan.width, top + plan.height)))


def _load(image: ImageFile.ImageFile, known: ImageFormat, plan: Preprocessing) -> tuple[Image.Image, Placement]:
    """Decode the first frame, upright, and say which part of it becomes the tensor."""
    jpeg = known is ImageFormat.JPEG
    if not jpeg:
        # Other formats may keep their EXIF behind the pixels.
        image.load()
    turn = orientation(image)
    placement = place(plan, upright_size(image.size, turn))
    factor = placement.shrink(plan.fidelity.jpeg_margin) if jpeg else 1
    if factor > 1:
        image.draft(None, (image.width // factor, image.height // factor))
    image.load()
    return turn_upright(image, turn), placement.scaled_down(factor)
