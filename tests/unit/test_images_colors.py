"""Every kind of pixel comes out as the colour a person would see."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.images.corpus import read
from tests.images.honest import HONEST, RAMP_LEVELS
from tests.images.pictures import QUADRANTS
from worker.contract import Pad, Preprocessing
from worker.images import ImageLimits, prepare
from worker.images.colors import eight_bits

WIDTH, HEIGHT = 64, 48
QUADRANT_FILES = sorted(
    name
    for name in HONEST
    if name.startswith(("plain.", "turned_", "lzw", "cmyk", "ycck", "palette", "progressive", "camera", "broken"))
)
GRAY = tuple(round(0.299 * red + 0.587 * green + 0.114 * blue) for red, green, blue in QUADRANTS)


def seen(name: str, *, height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    """The pixels of an honest file, uint8 ``[height, width, 3]``, at its own size."""
    out = np.empty((height, width, 3), dtype=np.uint8)
    plan = Preprocessing(height=height, width=width, layout="NHWC", framing=Pad())
    prepare(read("honest", name), plan=plan, limits=ImageLimits(), out=out)
    return out


def quadrant_colors(pixels: NDArray[np.uint8]) -> list[tuple[int, ...]]:
    """The colour in the middle of each quadrant: top left, top right, bottom left, bottom right."""
    height, width = pixels.shape[:2]
    return [
        tuple(int(value) for value in pixels[height * row // 4, width * column // 4])
        for row in (1, 3)
        for column in (1, 3)
    ]


@pytest.mark.parametrize("name", QUADRANT_FILES)
def test_image_is_seen_upright_in_its_own_colours(name: str) -> None:
    """Any format, coding, orientation and kind of ink gives the same four quadrants in the same places."""
    np.testing.assert_allclose(quadrant_colors(seen(name)), QUADRANTS, atol=3)


@pytest.mark.parametrize("name", ["gray.jpg", "gray_with_profile.jpg"])
def test_gray_image_fills_all_three_channels(name: str) -> None:
    """One channel becomes three equal ones, also where it carries the profile of a coloured image."""
    expected = [(level, level, level) for level in GRAY]
    np.testing.assert_allclose(quadrant_colors(seen(name)), expected, atol=2)


def test_one_bit_image_is_black_and_white() -> None:
    """A bit is nothing or everything, not 0 or 1 of 255."""
    assert quadrant_colors(seen("one_bit.png")) == [(0,) * 3, (255,) * 3, (0,) * 3, (255,) * 3]


@pytest.mark.parametrize("name", sorted(name for name in HONEST if name.startswith("hidden_")))
def test_transparent_pixels_are_white(name: str) -> None:
    """What is stored under full transparency is never seen, however a format spells transparency."""
    assert seen(name, height=32, width=32).min() == 255


@pytest.mark.parametrize("name", sorted(name for name in HONEST if name.startswith("ramp")))
def test_deep_samples_are_scaled_and_not_clipped(name: str) -> None:
    """Sixteen bits, integers and floats all span black to white in even steps."""
    row = seen(name, height=32, width=RAMP_LEVELS)[16, :, 0].astype(int)
    np.testing.assert_allclose(row, np.linspace(0, 255, RAMP_LEVELS), atol=1.5)


@pytest.mark.parametrize("name", sorted(name for name in HONEST if name.startswith("frames.")))
def test_animation_shows_its_first_frame(name: str) -> None:
    """Of red, green and blue, every format shows red."""
    pixels = seen(name, height=32, width=32)
    np.testing.assert_allclose(pixels.reshape(-1, 3), np.tile((254, 0, 0), (32 * 32, 1)), atol=3)


def test_wide_gamut_is_converted_to_srgb() -> None:
    """A colour in Display P3 keeps its look: its numbers change as the primaries do."""
    color = seen("wide_gamut.jpg", height=32, width=32)[16, 16]
    # The linear P3 to sRGB matrix on (90, 200, 90) with gamma 2.2, by hand.
    np.testing.assert_allclose(color, (0, 204, 73), atol=4)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        ([0.0, 0.5, 1.0], [0, 128, 255]),
        ([0.0, 128.0, 255.0], [0, 128, 255]),
        ([0.0, 1.5, 2.0], [0, 2, 2]),
        ([0.0, 32_768.0, 65_535.0], [0, 128, 255]),
        ([-1.0, 0.0, 1.0], [0, 128, 255]),
        ([0.0, 1e6], [0, 255]),
        ([5e9, 5e9], [0, 0]),
        ([0, 7, 255], [0, 7, 255]),
        ([0, 257, 65_535], [0, 1, 255]),
        ([-(2**31), 0, 2**31 - 1], [0, 128, 255]),
    ],
)
def test_eight_bits_takes_the_smallest_range_that_holds_all(samples: list[float], expected: list[int]) -> None:
    """Common ranges are kept as they are; only what fits none of them is stretched."""
    dtype = np.float32 if isinstance(samples[0], float) else np.int32
    assert eight_bits(np.array([samples], dtype=dtype)).ravel().tolist() == expected


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_eight_bits_refuses_what_is_no_number(bad: float) -> None:
    """NaN and infinity have no brightness."""
    with pytest.raises(ValueError, match="not numbers"):
        eight_bits(np.array([[0.0, bad]], dtype=np.float32))


def test_eight_bits_of_a_large_image_is_done_in_parts_without_seams() -> None:
    """An image of several parts is scaled by one rule throughout."""
    samples = np.linspace(0, 1, 2_500_000, dtype=np.float32).reshape(2_500, 1_000)
    scaled = eight_bits(samples)
    np.testing.assert_array_equal(scaled, np.rint(samples.astype(np.float64) * 255).astype(np.uint8))
