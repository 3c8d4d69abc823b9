"""Regions of an image, each of which is classified on its own: boxes in pixels of the upright image.

A detector's boxes, as a rule. The API checks them where an image's header tells its size, the worker in any case.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidegate.errors import InvalidField

#: Left, top, right and bottom; right and bottom lie just beyond the region, so their differences are its size.
Box = tuple[int, int, int, int]
#: Most regions of one job: each is an image to the model.
MAX_REGIONS = 64
#: How many of the largest images that are accepted all regions of a job may have pixels for, since each is resized.
MAX_COVER = 4


def check_regions(regions: Sequence[Box], sizes: Sequence[tuple[int, int]], *, max_pixels: int) -> None:
    """Refuse boxes that hold no pixel, reach beyond the image, or are too much work together.

    Args:
        regions: as they were asked for.
        sizes: width and height that the upright image may have; none where nothing is known. All boxes must fit
            into the same one.
        max_pixels: of the largest image that is accepted.

    Raises:
        InvalidField: naming the first box that is wrong.
    """
    for index, (left, top, right, bottom) in enumerate(regions):
        if not (0 <= left < right and 0 <= top < bottom):
            raise _wrong(index, "The box must be [left, top, right, bottom], with left < right and top < bottom.")
    pixels = sum((right - left) * (bottom - top) for left, top, right, bottom in regions)
    if pixels > MAX_COVER * max_pixels:
        most = f"at most {MAX_COVER * max_pixels} are accepted"
        raise InvalidField(
            "The regions are too large.", problems=(("#/regions", f"They have {pixels} pixels; {most}."),)
        )
    strays = [_first_stray(regions, size) for size in sizes]
    if strays and None not in strays:
        index = max(stray for stray in strays if stray is not None)
        spelt = " or ".join(f"{width}x{height}" for width, height in dict.fromkeys(sizes))
        raise _wrong(index, f"The box reaches beyond the upright image, which is {spelt}.")


def _first_stray(regions: Sequence[Box], size: tuple[int, int]) -> int | None:
    width, height = size
    strays = (index for index, (_, _, right, bottom) in enumerate(regions) if right > width or bottom > height)
    return next(strays, None)


def _wrong(index: int, problem: str) -> InvalidField:
    message = f"Region {index} cannot be cut out: {problem[0].lower()}{problem[1:]}"
    return InvalidField(message, problems=((f"#/regions/{index}", problem),))
