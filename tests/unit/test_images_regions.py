"""A region of an image is treated as if it had been sent on its own."""

from __future__ import annotations

import io

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.images.corpus import read
from tests.images.honest import HONEST, encode, turned
from tests.images.pictures import texture
from tidegate.errors import ImageTooLarge, InvalidField
from tidegate.regions import Box
from worker.contract import Pad, Preprocessing, ShorterSide, Squash
from worker.images import ImageLimits, cut_out, prepare, prepare_regions

PIXELS = texture(301, 203)
BOXES: list[Box] = [(0, 0, 301, 203), (17, 40, 240, 188), (300, 202, 301, 203), (0, 0, 12, 203)]
PLANS = [
    Preprocessing(height=24, width=32, layout="NHWC", framing=Squash(0.8)),
    Preprocessing(height=24, width=24, layout="NCHW", framing=ShorterSide(32, 24, 24)),
    Preprocessing(height=24, width=32, layout="NHWC", framing=Pad()),
]


def png(pixels: NDArray[np.uint8]) -> bytes:
    """A file with exactly these pixels."""
    return encode(Image.fromarray(pixels), "PNG")


def rows(plan: Preprocessing, count: int) -> NDArray[np.float32]:
    """Room for so many images."""
    shape = (3, plan.height, plan.width) if plan.layout == "NCHW" else (plan.height, plan.width, 3)
    return np.full((count, *shape), -1, np.float32)


@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: type(plan.framing).__name__)
def test_region_is_an_image_of_its_own(plan: Preprocessing) -> None:
    """Each row holds, to the last bit, what the cut-out file would have given."""
    got = rows(plan, len(BOXES))
    prepare_regions(png(PIXELS), BOXES, plan=plan, limits=ImageLimits(), out=got)
    for (left, top, right, bottom), row in zip(BOXES, got, strict=True):
        alone = rows(plan, 1)[0]
        prepare(png(PIXELS[top:bottom, left:right]), plan=plan, limits=ImageLimits(), out=alone)
        np.testing.assert_array_equal(row, alone)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_box_counts_pixels_of_the_upright_image(orientation: int) -> None:
    """However a photo lies in its file, the same box shows the same quarter of it."""
    plan = Preprocessing(height=8, width=8, layout="NHWC")
    got = rows(plan, 2)
    boxes: list[Box] = [(40, 4, 60, 20), (4, 28, 28, 44)]
    prepare_regions(turned(orientation, "JPEG"), boxes, plan=plan, limits=ImageLimits(), out=got)
    np.testing.assert_allclose(got[:, 4, 4], [(30, 200, 40), (40, 60, 210)], atol=3)


@pytest.mark.parametrize("name", sorted(HONEST))
def test_whole_image_as_a_region_is_the_image(name: str) -> None:
    """Every kind of file has the same colours whether it is asked about whole or as one box."""
    data = read("honest", name)
    plan = Preprocessing(height=16, width=16, layout="NHWC")
    whole, region = rows(plan, 1), rows(plan, 1)
    prepare(data, plan=plan, limits=ImageLimits(), out=whole[0])
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        sideways = image.getexif().get(0x0112, 1) >= 5
        width, height = image.size[::-1] if sideways else image.size
    prepare_regions(data, [(0, 0, width, height)], plan=plan, limits=ImageLimits(), out=region)
    np.testing.assert_array_equal(region, whole)


def test_region_for_a_model_that_decodes_is_a_png_of_it() -> None:
    """Such a model gets a file of just the region, upright and in plain RGB."""
    files = [*cut_out(png(PIXELS), BOXES, limits=ImageLimits())]
    for (left, top, right, bottom), file in zip(BOXES, files, strict=True):
        with Image.open(io.BytesIO(file), formats=("PNG",)) as image:
            np.testing.assert_array_equal(np.asarray(image), PIXELS[top:bottom, left:right])


@pytest.mark.parametrize(
    ("boxes", "words"),
    [
        ([(0, 0, 302, 203)], "Region 0 cannot be cut out: the box reaches beyond the upright image, which is 301x203"),
        ([(0, 0, 5, 5), (0, 0, 301, 204)], "Region 1 cannot be cut out"),
        ([(0, 0, 301, 203)] * 5, "The regions are too large"),
    ],
)
def test_box_that_cannot_be_cut_out_is_the_clients_mistake(boxes: list[Box], words: str) -> None:
    """Beyond the image, or more pixels than four of the largest images have together."""
    plan = PLANS[0]
    limits = ImageLimits(max_pixels=301 * 203)
    with pytest.raises(InvalidField) as caught:
        prepare_regions(png(PIXELS), boxes, plan=plan, limits=limits, out=rows(plan, len(boxes)))
    assert str(caught.value).startswith(words)


def test_region_that_is_too_large_as_a_file_is_refused() -> None:
    """A model that decodes never gets more bytes than an image may have."""
    data = encode(Image.fromarray(PIXELS), "JPEG", quality=20)
    with pytest.raises(ImageTooLarge):
        list(cut_out(data, [(0, 0, 301, 203)], limits=ImageLimits(max_bytes=len(data))))
