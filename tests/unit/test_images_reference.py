"""Preprocessing against torchvision's own transforms, and JPEGs against a full decode."""

from __future__ import annotations

import functools
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.images.pictures import texture
from worker.contract import Fidelity, Interpolation, Preprocessing, ShorterSide
from worker.images import ImageLimits, prepare
from worker.images.opening import turn_upright

REFERENCE = np.load(Path(__file__).parents[1] / "images" / "reference" / "torchvision.npz")
CASES = [name for name in REFERENCE.files if name != "versions"]
RESAMPLING = {Interpolation.BILINEAR: Image.Resampling.BILINEAR, Interpolation.BICUBIC: Image.Resampling.BICUBIC}


@functools.cache
def picture(width: int, height: int) -> bytes:
    """A lossless file of the texture that torchvision was given."""
    return encoded(texture(width, height), "BMP")


@functools.cache
def photo(width: int, height: int) -> bytes:
    """A JPEG of large shapes with fine detail and hard edges, as a large photo has."""
    coarse = Image.fromarray(texture(width // 8, height // 8)).resize((width, height), Image.Resampling.BICUBIC)
    detail = texture(width, height).astype(np.int16) - 128
    return encoded(np.clip(np.asarray(coarse) + detail // 6, 0, 255).astype(np.uint8), "JPEG", quality=90)


def encoded(pixels: NDArray[np.uint8], kind: str, **options: Any) -> bytes:
    """An image file of these pixels."""
    target = io.BytesIO()
    Image.fromarray(pixels).save(target, kind, **options)
    return target.getvalue()


def prepared(data: bytes, plan: Preprocessing) -> NDArray[np.uint8]:
    """The tensor of one image, uint8 ``[3, height, width]``."""
    out = np.empty((3, plan.height, plan.width), dtype=np.uint8)
    prepare(data, plan=plan, limits=ImageLimits(), out=out)
    return out


@pytest.mark.parametrize("case", CASES)
def test_prepare_agrees_with_torchvision(case: str) -> None:
    """Resize of the shorter side and centre crop give torchvision's pixels, within 1/255, on odd sizes too."""
    match = re.fullmatch(r"(\d+)x(\d+) (\w+) shorter:(\d+) (\d+)", case)
    assert match
    width, height, side, crop = (int(match[group]) for group in (1, 2, 4, 5))
    plan = Preprocessing(
        height=crop,
        width=crop,
        layout="NCHW",
        framing=ShorterSide(side, crop, crop),
        interpolation=Interpolation(match[3]),
    )
    tensor = prepared(picture(width, height), plan)
    assert np.abs(tensor.astype(int) - REFERENCE[case].astype(int)).max() <= 1


def full_decode(data: bytes, plan: Preprocessing) -> NDArray[np.uint8]:
    """What Pillow makes of a JPEG with every pixel decoded, in torchvision's steps."""
    image = Image.open(io.BytesIO(data))
    width, height = image.size
    side, crop = 256, 224
    size = (side, int(side * height / width)) if width <= height else (int(side * width / height), side)
    left, top = round((size[0] - crop) / 2), round((size[1] - crop) / 2)
    resized = image.resize(size, RESAMPLING[plan.interpolation]).crop((left, top, left + crop, top + crop))
    pixels: NDArray[np.uint8] = np.asarray(resized).transpose(2, 0, 1)
    return pixels


@pytest.mark.parametrize("size", [(1200, 801), (2001, 1503), (1507, 2200)])
@pytest.mark.parametrize("interpolation", RESAMPLING)
@pytest.mark.parametrize(("fidelity", "worst", "mean"), [(Fidelity.FAITHFUL, 2, 0.2), (Fidelity.FAST, 20, 1.5)])
def test_prepare_of_a_large_jpeg_stays_near_its_full_decode(
    size: tuple[int, int], interpolation: Interpolation, fidelity: Fidelity, worst: int, mean: float
) -> None:
    """Decoding at a smaller scale costs at most 2/255, and where speed was chosen, what the docs say."""
    data = photo(*size)
    plan = Preprocessing(
        height=224,
        width=224,
        layout="NCHW",
        framing=ShorterSide(256, 224, 224),
        interpolation=interpolation,
        fidelity=fidelity,
    )
    difference = np.abs(prepared(data, plan).astype(int) - full_decode(data, plan).astype(int))
    assert difference.max() <= worst
    assert difference.mean() <= mean


@pytest.mark.parametrize(("fidelity", "decoded"), [(Fidelity.FAITHFUL, (2000, 1500)), (Fidelity.FAST, (500, 375))])
def test_prepare_decodes_a_large_jpeg_at_a_smaller_scale(
    monkeypatch: pytest.MonkeyPatch, fidelity: Fidelity, decoded: tuple[int, int]
) -> None:
    """The cheap way is really taken: most pixels of a 12-megapixel photo are never made."""
    sizes: list[tuple[int, int]] = []

    def spy(image: Image.Image, turn: int) -> Image.Image:
        sizes.append(image.size)
        return turn_upright(image, turn)

    monkeypatch.setattr("worker.images.preparing.turn_upright", spy)
    data = encoded(np.zeros((3000, 4000, 3), dtype=np.uint8), "JPEG")
    framing = ShorterSide(256, 224, 224)
    prepared(data, Preprocessing(height=224, width=224, layout="NCHW", framing=framing, fidelity=fidelity))
    assert sizes == [decoded]
