"""Pixels into the batch array of the model's own layout, order, scale and type."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.images.corpus import read
from tests.images.pictures import texture
from worker.contract import DTYPES, SCALINGS, Color, Datatype, Layout, Pad, Preprocessing, Squash
from worker.images import ImageLimits, prepare

HEIGHT, WIDTH = 24, 40
PIXELS = texture(WIDTH, HEIGHT)
TYPES: tuple[Datatype, ...] = ("UINT8", "FP16", "BF16", "FP32")


def picture() -> bytes:
    """A file whose pixels are exactly :data:`PIXELS`."""
    target = io.BytesIO()
    Image.fromarray(PIXELS).save(target, "PNG")
    return target.getvalue()


def tensor(datatype: Datatype, layout: Layout, **choices: Any) -> NDArray[Any]:
    """What becomes of the picture, in the middle row of a batch of three."""
    shape = (HEIGHT, WIDTH, 3) if layout == "NHWC" else (3, HEIGHT, WIDTH)
    batch = np.full((3, *shape), 99, dtype=DTYPES[datatype])
    plan = Preprocessing(height=HEIGHT, width=WIDTH, layout=layout, framing=Squash(), **choices)
    prepare(picture(), plan=plan, limits=ImageLimits(), out=batch[1])
    assert (batch[[0, 2]] == 99).all(), "a neighbour's row was touched"
    row: NDArray[Any] = batch[1]
    return row


@pytest.mark.parametrize("datatype", TYPES)
def test_prepare_writes_either_layout(datatype: Datatype) -> None:
    """Channels first and channels last hold the same values, in the row that was given and nowhere else."""
    last, first = tensor(datatype, "NHWC"), tensor(datatype, "NCHW")
    np.testing.assert_array_equal(last.astype(np.float32), PIXELS)
    np.testing.assert_array_equal(first.astype(np.float32), PIXELS.transpose(2, 0, 1))


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("datatype", TYPES)
def test_prepare_orders_channels_as_the_model_wants(datatype: Datatype, layout: Layout) -> None:
    """BGR exchanges red and blue, and only them."""
    rgb, bgr = tensor(datatype, layout), tensor(datatype, layout, color=Color.BGR)
    axis = -1 if layout == "NHWC" else 0
    np.testing.assert_array_equal(np.flip(rgb, axis).astype(np.float32), bgr.astype(np.float32))
    assert (rgb != bgr).any()


@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("datatype", ["FP16", "BF16", "FP32"])
def test_prepare_scales_to_the_last_bit_of_the_type(datatype: Datatype, name: str) -> None:
    """Values are computed in double precision and rounded once."""
    scaling = SCALINGS[name]
    exact = (PIXELS.astype(np.float64) - scaling.mean) / scaling.divisor
    np.testing.assert_array_equal(
        tensor(datatype, "NHWC", scaling=scaling).astype(np.float64),
        exact.astype(DTYPES[datatype]).astype(np.float64),
    )


def test_prepare_takes_means_as_red_green_blue_also_for_bgr() -> None:
    """A mean belongs to a colour, wherever that colour stands in the tensor."""
    scaled = tensor("FP32", "NCHW", scaling=SCALINGS["vgg"], color=Color.BGR)
    np.testing.assert_allclose(scaled[0], PIXELS[..., 2] - 104.0)
    np.testing.assert_allclose(scaled[2], PIXELS[..., 0] - 123.0)


def test_prepare_pads_with_black_of_the_models_scale() -> None:
    """What surrounds a padded image is a black pixel, scaled like any other, also around inks."""
    plan = Preprocessing(64, 64, "NHWC", framing=Pad(), scaling=SCALINGS["inception"])
    out = np.empty((64, 64, 3), dtype=np.float32)
    prepare(read("honest", "cmyk.jpg"), plan=plan, limits=ImageLimits(), out=out)
    assert (out[:8] == -1).all()
    assert (out[-8:] == -1).all()
    assert (out[8:-8] > -1).any()


@pytest.mark.parametrize("shape", [(HEIGHT, WIDTH, 4), (WIDTH, HEIGHT, 3), (HEIGHT, WIDTH)])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
def test_prepare_never_blames_the_image_for_a_row_of_another_shape(shape: tuple[int, ...], dtype: Any) -> None:
    """A mistake of ours is not reported to the client as a corrupt image."""
    plan = Preprocessing(HEIGHT, WIDTH, "NHWC")
    with pytest.raises(ValueError, match=r"array|axes|shape|broadcast|zip"):
        prepare(picture(), plan=plan, limits=ImageLimits(), out=np.empty(shape, dtype=dtype))
