"""Which part of an image becomes which part of the tensor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.contract import Fidelity, Framing, Pad, Preprocessing, ShorterSide, Squash
from worker.images.geometry import MAX_WHOLE_PIXELS, Placement, place


def plan(
    framing: Framing, *, fidelity: Fidelity = Fidelity.FAITHFUL, height: int = 224, width: int = 224
) -> Preprocessing:
    """A plan that differs in its framing only."""
    return Preprocessing(height=height, width=width, layout="NHWC", framing=framing, fidelity=fidelity)


@pytest.mark.parametrize(
    ("framing", "image", "expected"),
    [
        (Squash(), (640, 480), Placement((0, 0, 640, 480), (224, 224))),
        (Squash(0.5), (640, 480), Placement((160, 120, 480, 360), (224, 224))),
        (ShorterSide(256, 224, 224), (640, 480), Placement((0, 0, 640, 480), (341, 256), (58, 16))),
        (ShorterSide(256, 224, 224), (480, 640), Placement((0, 0, 480, 640), (256, 341), (16, 58))),
        (ShorterSide(256, 224, 224), (256, 256), Placement((0, 0, 256, 256), (256, 256), (16, 16))),
        (Pad(), (640, 480), Placement((0, 0, 640, 480), (224, 168), (0, -28))),
        (Pad(), (1, 1000), Placement((0, 0, 1, 1000), (1, 224), (-111, 0))),
    ],
)
def test_place_frames_the_image_as_the_plan_says(framing: Framing, image: tuple[int, int], expected: Placement) -> None:
    """Squash, shorter side with a cut, and padding each see their part of the image."""
    assert place(plan(framing), image) == expected


def test_place_resizes_only_what_is_seen_where_that_is_wanted() -> None:
    """The fast way sees the same part: the cut of the resized image, measured in the source."""
    whole = place(plan(ShorterSide(256, 224, 224)), (512, 1024))
    part = place(plan(ShorterSide(256, 224, 224), fidelity=Fidelity.FAST), (512, 1024))
    assert (whole.size, whole.corner) == ((256, 512), (16, 144))
    assert part == Placement((32, 288, 480, 736), (224, 224))


def test_place_bounds_the_cost_of_a_panorama() -> None:
    """No intermediate image of 16 million columns is made of a line."""
    assert place(plan(ShorterSide(256, 224, 224)), (65_500, 1)).size == (224, 224)


def test_place_resizes_a_crop_of_another_size_in_the_same_step() -> None:
    """A crop that is not the tensor's size is resized once, not twice."""
    placement = place(plan(ShorterSide(256, 256, 256), height=128, width=128), (512, 512))
    assert placement == Placement((0, 0, 512, 512), (128, 128))


@pytest.mark.parametrize(
    ("image", "margin", "factor"),
    [((224, 224), 1.0, 1), ((447, 448), 1.0, 1), ((448, 448), 1.0, 2), ((4000, 3000), 1.0, 8), ((4000, 3000), 4.0, 2)],
)
def test_shrink_leaves_as_many_pixels_as_the_margin_asks(image: tuple[int, int], margin: float, factor: int) -> None:
    """A JPEG is never decoded to less than the resize needs."""
    assert place(plan(Squash()), image).shrink(margin) == factor


def test_scaled_down_follows_the_decoder() -> None:
    """The box moves with the size of the decoded image, fractions kept."""
    placement = Placement((1, 2, 31, 45), (10, 10), (3, 4))
    assert placement.scaled_down(2) == Placement((0.5, 1, 15.5, 22.5), (10, 10), (3, 4))


@given(
    width=st.integers(1, 65_500),
    height=st.integers(1, 65_500),
    framing=st.sampled_from([Squash(), Squash(0.3), ShorterSide(256, 224, 192), ShorterSide(300, 77, 300), Pad()]),
    fidelity=st.sampled_from(Fidelity),
)
def test_place_never_leaves_the_image(width: int, height: int, framing: Framing, fidelity: Fidelity) -> None:
    """Whatever the size, the box lies in the image, is not empty, and fills the tensor at bounded cost."""
    chosen = plan(framing, fidelity=fidelity, height=224, width=192)
    placement = place(chosen, (width, height))
    left, top, right, bottom = placement.box
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert placement.size[0] * placement.size[1] <= MAX_WHOLE_PIXELS
    if not isinstance(framing, Pad):
        assert 0 <= placement.corner[0] <= placement.size[0] - chosen.width
        assert 0 <= placement.corner[1] <= placement.size[1] - chosen.height
