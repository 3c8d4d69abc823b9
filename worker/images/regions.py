"""Parts of an image, each as if it had been sent on its own: cut out of the upright image at its full size."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from tidegate.formats import ImageFormat, ImageLimits
from tidegate.regions import Box, check_regions
from worker.contract import Preprocessing
from worker.images.colors import ColorRule, flatten
from worker.images.geometry import place
from worker.images.opening import decoder_errors, open_image, orientation, turn_upright, upright_size
from worker.images.preparing import fit, judge_bytes
from worker.images.tensors import write_tensor

#: For images that go on to a model that decodes them itself: fast, since they live for a moment.
_PNG_COMPRESSION = 1


def prepare_regions(
    data: bytes, regions: Sequence[Box], *, plan: Preprocessing, limits: ImageLimits, out: NDArray[Any]
) -> None:
    """Decode one image and write each region, preprocessed, into its place in the batch.

    Args:
        data: the encoded image, of any format that is accepted and from anybody.
        regions: what to cut out of the upright image.
        plan: how the model wants its images; a region counts as a whole one.
        limits: judged before a pixel is decoded.
        out: ``[regions, ...]``; each as :func:`worker.images.prepare` takes it. Undefined after an error.

    Raises:
        UnsupportedFormat: it is no image in an accepted format.
        ImageTooLarge: it is beyond the limits.
        ImageCorrupt: it is empty, broken or truncated.
        InvalidField: a region reaches beyond the image, or they have too many pixels together.
    """
    known = judge_bytes(data, limits)
    with decoder_errors(known):
        flat, rule = _open_whole(data, known, regions, limits)
    for box, row in zip(regions, out, strict=True):
        with decoder_errors(known):
            part = flat.crop(box)
            pixels = fit(part, place(plan, part.size), plan, rule)
        write_tensor(pixels, plan=plan, out=row)


def cut_out(data: bytes, regions: Sequence[Box], *, limits: ImageLimits) -> Iterator[bytes]:
    """Decode one image and give each region as a PNG, for a model that decodes images itself.

    Raises:
        UnsupportedFormat, ImageTooLarge, ImageCorrupt, InvalidField: as for :func:`prepare_regions`; a region that
            is larger as a PNG than an image may be is too large, too.
    """
    known = judge_bytes(data, limits)
    with decoder_errors(known):
        flat, rule = _open_whole(data, known, regions, limits)
    for box in regions:
        file = io.BytesIO()
        with decoder_errors(known):
            rule.apply(flat.crop(box)).save(file, "PNG", compress_level=_PNG_COMPRESSION)
        limits.check_bytes(file.tell())
        yield file.getvalue()


def _open_whole(
    data: bytes, known: ImageFormat, regions: Sequence[Box], limits: ImageLimits
) -> tuple[Image.Image, ColorRule]:
    """The whole image, upright and flat; the boxes are checked before a pixel is decoded where EXIF comes first."""
    image = open_image(data, known, limits)
    if known is not ImageFormat.JPEG:
        # Other formats may keep their EXIF behind the pixels.
        image.load()
    turn = orientation(image)
    check_regions(regions, [upright_size(image.size, turn)], max_pixels=limits.max_pixels)
    image.load()
    return flatten(turn_upright(image, turn)), ColorRule.of(image, known)
