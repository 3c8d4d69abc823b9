"""Every kind of pixel to sRGB: transparency, palettes, deep and inverted samples, colour profiles.

In two steps. :func:`flatten` makes pixels that may be averaged, before the resize; :func:`to_srgb` does the
rest after it, when few pixels are left.
"""

from __future__ import annotations

import functools
import io
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageChops, ImageCms

from tidegate.formats import ImageFormat

MAX_PROFILE_BYTES = 4 * 1024 * 1024
"""Larger colour profiles are ignored. Those of printing presses have up to about 3 MB."""

_PLAIN_MODES = frozenset({"L", "RGB", "CMYK"})
_MODE_OF_SPACE = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}
_PART_SAMPLES = 1_000_000
_BYTE = 255
_WORD = 65_535
_BITS_PER_SAMPLE_TAG = 258
_PHOTOMETRIC_TAG = 262
_WHITE_IS_ZERO = 0


@dataclass(frozen=True)
class ColorRule:
    """How the pixels of one image become sRGB, also those of a part of it.

    Attributes:
        profile: its ICC profile.
        inverted: whether the inks of a CMYK image are stored the other way round than Pillow takes them.
    """

    profile: bytes | None
    inverted: bool

    @classmethod
    def of(cls, image: Image.Image, known: ImageFormat) -> Self:
        """The rule for an image that was decoded."""
        # Without Adobe's marker, the inks of a JPEG are stored as they are, and Pillow inverts them all the same.
        inverted = known is ImageFormat.JPEG and image.mode == "CMYK" and "adobe" not in image.info
        return cls(image.info.get("icc_profile"), inverted)

    def apply(self, flat: Image.Image) -> Image.Image:
        """What :func:`flatten` made of it, or a resized part of that, in sRGB."""
        return to_srgb(flat, self.profile, inverted=self.inverted)


def flatten(image: Image.Image) -> Image.Image:
    """Make an image opaque with 8 bits a sample.

    Transparent pixels are composited on white. Samples of 16 bits keep their high byte; wider and float
    samples are scaled by :func:`eight_bits`.

    Returns:
        An image of mode ``L``, ``RGB`` or ``CMYK``.

    Raises:
        ValueError: float samples are not all numbers, or Pillow has no way from this kind of pixel to RGB.
    """
    if image.mode in {"I", "F"} or image.mode.startswith("I;16"):
        return _flatten_deep(image)
    if image.has_transparency_data:
        return _on_white(image)
    if image.mode in _PLAIN_MODES:
        return image
    return image.convert("L" if image.mode == "1" else "RGB")


def eight_bits(samples: NDArray[Any]) -> NDArray[np.uint8]:
    """Scale samples whose range no header tells, without clipping any.

    The range is taken to be the smallest of 0..1 (for floats), 0..255 and 0..65535 that holds them all; where
    none does, the smallest sample becomes 0 and the largest 255.

    Raises:
        ValueError: a sample is NaN or infinite.
    """
    low, high = float(samples.min()), float(samples.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("there are samples that are not numbers")
    ranges = (1, _BYTE, _WORD) if samples.dtype.kind == "f" else (_BYTE, _WORD)
    top = next((top for top in ranges if low >= 0 and high <= top), None)
    offset, scale = (low, _BYTE / ((high - low) or 1)) if top is None else (0, _BYTE / top)
    scaled = np.empty(samples.shape, dtype=np.uint8)
    # In parts, since double precision of a whole image would take eight times the memory of the result.
    parts = samples.size // _PART_SAMPLES + 1
    for source, target in zip(np.array_split(samples, parts), np.array_split(scaled, parts), strict=True):
        target[...] = np.rint((source.astype(np.float64) - offset) * scale)
    return scaled


def to_srgb(image: Image.Image, profile: bytes | None, *, inverted: bool = False) -> Image.Image:
    """Convert what :func:`flatten` made to sRGB.

    Args:
        image: of mode ``L``, ``RGB`` or ``CMYK``.
        profile: its ICC profile. One that is broken, or for another kind of pixel, is ignored.
        inverted: whether the inks of a CMYK image were stored the other way round than Pillow takes them.

    Returns:
        An image of mode ``RGB``.
    """
    if inverted:
        image = ImageChops.invert(image)
    transform = _transform(profile) if profile and len(profile) <= MAX_PROFILE_BYTES else None
    # Grey pixels often carry the profile of the coloured ones they were made of.
    if transform and (image.mode == transform.input_mode or (image.mode, transform.input_mode) == ("L", "RGB")):
        return transform.apply(image.convert(transform.input_mode))
    return image.convert("RGB")


def _flatten_deep(image: Image.Image) -> Image.Image:
    samples = np.asarray(image)
    tags = getattr(image, "tag_v2", {})
    if image.mode.startswith("I;16"):
        bits = tags.get(_BITS_PER_SAMPLE_TAG, (16,))[0]
        gray = (samples >> (bits - 8)).astype(np.uint8)
    else:
        gray = eight_bits(samples)
    if tags.get(_PHOTOMETRIC_TAG) == _WHITE_IS_ZERO:
        gray = _BYTE - gray
    transparent = image.info.get("transparency")
    if isinstance(transparent, int):
        gray[samples == transparent] = _BYTE
    return Image.fromarray(gray)


def _on_white(image: Image.Image) -> Image.Image:
    key = image.info.get("transparency")
    if image.mode == "RGB" and isinstance(key, tuple) and max(key) > _BYTE:
        # Pillow keeps the high byte of 16-bit samples, but both bytes of the colour that is transparent.
        image.info["transparency"] = tuple(sample >> 8 for sample in key)
    layers = (image.convert("LA") if image.mode == "La" else image).convert("RGBA")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(layers, mask=layers)
    return canvas


@functools.lru_cache(maxsize=8)
def _transform(profile: bytes) -> ImageCms.ImageCmsTransform | None:
    """The way from a profile to sRGB; None where there is none, or it leads nowhere else.

    Kept, since building one takes as long as decoding a small photo, and cameras use few profiles.
    """
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if ImageCms.getProfileDescription(source).startswith("sRGB"):
            return None
        return ImageCms.ImageCmsTransform(
            source,
            ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")),
            _MODE_OF_SPACE[source.profile.xcolor_space.strip()],
            "RGB",
            # Without it, threads that share a transform would mix up each other's last pixel.
            flags=ImageCms.Flags.NOCACHE,
        )
    except (ImageCms.PyCMSError, OSError, TypeError, ValueError, KeyError):
        return None
