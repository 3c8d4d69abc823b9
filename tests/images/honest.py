"""The good half of the corpus: one small file for each kind of image that must come out right."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from PIL import Image, ImageChops, ImageCms

from tests.images.encoding import display_p3, png16, ycck_jpeg
from tests.images.pictures import quadrants

RED = (254, 0, 0)
RAMP_LEVELS = 64
"""Steps from black to white, left to right, in the images of deep samples."""


def encode(image: Image.Image, kind: str, **options: Any) -> bytes:
    """The bytes of an image in a format as Pillow writes it."""
    target = io.BytesIO()
    image.save(target, kind, **options)
    return target.getvalue()


def hidden_red(mode: str) -> Image.Image:
    """An image that is red all over and transparent all over, so that only white may be seen."""
    return Image.new("RGBA", (32, 32), (*RED, 0)).convert(mode)


def ramp() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Grey from 0 to 1: ``[32, 64]``."""
    return np.tile(np.linspace(0.0, 1.0, RAMP_LEVELS), (32, 1))


def turned(orientation: int, kind: str) -> bytes:
    """The quadrants, stored turned, with the EXIF that turns them back."""
    undo = {
        2: Image.Transpose.FLIP_LEFT_RIGHT,
        3: Image.Transpose.ROTATE_180,
        4: Image.Transpose.FLIP_TOP_BOTTOM,
        5: Image.Transpose.TRANSPOSE,
        6: Image.Transpose.ROTATE_90,
        7: Image.Transpose.TRANSVERSE,
        8: Image.Transpose.ROTATE_270,
    }
    image = quadrants()
    stored = image.transpose(undo[orientation]) if orientation in undo else image
    exif = Image.Exif()
    exif[0x0112] = orientation
    return encode(stored, kind, exif=exif.tobytes(), quality=95)


def frames(kind: str, **options: Any) -> bytes:
    """Three frames: red, green, blue."""
    red, green, blue = (Image.new("RGB", (32, 32), color) for color in (RED, (0, 254, 0), (0, 0, 254)))
    return encode(red, kind, save_all=True, append_images=[green, blue], **options)


def bare_cmyk() -> bytes:
    """A CMYK JPEG without Adobe's marker, so with inks stored as they are."""
    inverted = ImageChops.invert(quadrants().convert("CMYK"))
    data = encode(inverted, "JPEG", quality=95)
    start = data.index(b"\xff\xee")
    length = int.from_bytes(data[start + 2 : start + 4], "big")
    return data[:start] + data[start + 2 + length :]


def wide_gamut() -> bytes:
    """A green that stands in a profile of wider primaries, and so is a stronger green in sRGB."""
    return encode(Image.new("RGB", (32, 32), (90, 200, 90)), "JPEG", quality=95, icc_profile=display_p3())


def _palette(**options: Any) -> bytes:
    return encode(quadrants().quantize(8), "PNG", **options)


def _keyed_palette() -> bytes:
    return encode(Image.new("RGB", (32, 32), RED).quantize(2), "PNG", transparency=0)


def _gray_profile_of_srgb() -> bytes:
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return encode(quadrants().convert("L"), "JPEG", quality=95, icc_profile=profile)


def _camera_pair() -> bytes:
    return encode(quadrants(), "MPO", save_all=True, append_images=[Image.new("RGB", (64, 48))], quality=95)


HONEST: Mapping[str, Callable[[], bytes]] = {
    "plain.jpg": lambda: encode(quadrants(), "JPEG", quality=95),
    "progressive.jpg": lambda: encode(quadrants(), "JPEG", quality=95, progressive=True),
    "gray.jpg": lambda: encode(quadrants().convert("L"), "JPEG", quality=95),
    "gray_with_profile.jpg": _gray_profile_of_srgb,
    "camera_pair.mpo": _camera_pair,
    "cmyk.jpg": lambda: encode(quadrants().convert("CMYK"), "JPEG", quality=95),
    "cmyk_without_marker.jpg": bare_cmyk,
    "ycck.jpg": lambda: ycck_jpeg(quadrants()),
    "cmyk.tiff": lambda: encode(quadrants().convert("CMYK"), "TIFF"),
    "wide_gamut.jpg": wide_gamut,
    "broken_profile.jpg": lambda: encode(quadrants(), "JPEG", quality=95, icc_profile=b"no profile at all"),
    "broken_exif.jpg": lambda: encode(quadrants(), "JPEG", quality=95, exif=b"Exif\0\0II*\0\xff\xff\xff\xff"),
    "plain.png": lambda: encode(quadrants(), "PNG"),
    "palette.png": _palette,
    "one_bit.png": lambda: encode(quadrants().convert("L").point(lambda value: 255 * (value > 100), "1"), "PNG"),
    "plain.webp": lambda: encode(quadrants(), "WEBP", lossless=True),
    "plain.gif": lambda: encode(quadrants(), "GIF"),
    "plain.bmp": lambda: encode(quadrants(), "BMP"),
    "plain.tiff": lambda: encode(quadrants(), "TIFF"),
    "lzw.tiff": lambda: encode(quadrants(), "TIFF", compression="tiff_lzw"),
    "plain.avif": lambda: encode(quadrants(), "AVIF", quality=95),
    "hidden_red_rgba.png": lambda: encode(hidden_red("RGBA"), "PNG"),
    "hidden_red_la.png": lambda: encode(hidden_red("LA"), "PNG"),
    "hidden_red_palette.png": _keyed_palette,
    "hidden_red_rgb.png": lambda: encode(Image.new("RGB", (32, 32), RED), "PNG", transparency=RED),
    "hidden_red_rgb16.png": lambda: png16(
        np.full((32, 32, 3), (65_000, 7, 300), dtype=np.uint16), transparent=(65_000, 7, 300)
    ),
    "hidden_gray16.png": lambda: png16(np.full((32, 32), 777, dtype=np.uint16), transparent=(777,)),
    "hidden_red.webp": lambda: encode(hidden_red("RGBA"), "WEBP", lossless=True, exact=True),
    "hidden_red.gif": lambda: encode(Image.new("RGB", (32, 32), RED).quantize(2), "GIF", transparency=0),
    "hidden_red.tiff": lambda: encode(hidden_red("RGBA"), "TIFF"),
    "hidden_red.avif": lambda: encode(hidden_red("RGBA"), "AVIF"),
    "ramp16.png": lambda: png16((ramp() * 65_535).astype(np.uint16)),
    "ramp16_rgb.png": lambda: png16(np.stack([(ramp() * 65_535).astype(np.uint16)] * 3, axis=-1)),
    "ramp16.tiff": lambda: encode(Image.fromarray((ramp() * 65_535).astype(np.uint16)), "TIFF"),
    "ramp32.tiff": lambda: encode(Image.fromarray((ramp() * 2_000_000_000).astype(np.int32)), "TIFF"),
    "ramp_float.tiff": lambda: encode(Image.fromarray(ramp().astype(np.float32)), "TIFF"),
    "frames.gif": lambda: frames("GIF"),
    "frames.png": lambda: frames("PNG"),
    "frames.webp": lambda: frames("WEBP", lossless=True),
    "frames.tiff": lambda: frames("TIFF"),
    "frames.avif": lambda: frames("AVIF", quality=95),
    **{f"turned_{turn}.jpg": functools.partial(turned, turn, "JPEG") for turn in range(1, 9)},
    **{f"turned_6.{kind}": functools.partial(turned, 6, kind) for kind in ("png", "webp", "tiff", "avif")},
}
"""File name to what makes its bytes."""
