"""The boundary to Pillow: one decoder for one format, strict, and no exception or warning of its own gets out."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterator

from PIL import ExifTags, Image, ImageFile, PngImagePlugin, TiffImagePlugin

from tidegate.errors import ImageCorrupt, ImageTooLarge, TidegateError
from tidegate.formats import ImageFormat, ImageLimits

PNG_TEXT_BYTES = 8 * 1024 * 1024
"""All texts of a PNG together, unpacked; Pillow's own limit is eight times as much."""

TIFF_TILE_PIXELS = 4_000_000
"""A tile of a TIFF may be larger than the image up to this size; common ones have 65 thousand to a million."""

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""What turns an image upright, by its EXIF orientation. Source: Exif 2.32, tag 274."""
_FIRST_SIDEWAYS_TURN = 5

# Counting the frames of the others would mean reading through the whole file.
_FORMATS_THAT_COUNT_FRAMES = frozenset({ImageFormat.JPEG, ImageFormat.PNG, ImageFormat.WEBP, ImageFormat.AVIF})


@contextlib.contextmanager
def decoder_errors(known: ImageFormat) -> Iterator[None]:
    """Turn whatever a decoder raises over hostile bytes into one of our errors.

    Raises:
        ImageTooLarge: it needs more pixels than allowed or more memory than there is, or it has too much text.
        ImageCorrupt: anything else.
    """
    try:
        yield
    except TidegateError:
        raise
    except Image.DecompressionBombError as error:
        raise ImageTooLarge("The image has more pixels than are accepted") from error
    except MemoryError as error:
        raise ImageTooLarge("The image needs more memory than there is") from error
    # Decoders raise anything over hostile bytes, from struct.error to AssertionError.
    except Exception as error:
        if "MAX_TEXT" in str(error):
            raise ImageTooLarge("The PNG carries more text than is accepted") from error
        raise ImageCorrupt(
            f"The {known.upper()} image is broken or truncated, or of a kind that cannot be read"
        ) from error


def open_image(data: bytes, known: ImageFormat, limits: ImageLimits) -> ImageFile.ImageFile:
    """Read the header with the decoder of this format and no other. To be called under :func:`decoder_errors`.

    Raises:
        ImageTooLarge: it has more pixels or frames than the limits allow.
        ImageCorrupt: it has no pixels.
    """
    _hold_pillow_to_our_rules(limits)
    image = Image.open(io.BytesIO(data), formats=(known.upper(),))
    limits.check_size(*image.size)
    limits.check_frames(count_frames(image, known) or 1)
    _check_tiles(image)
    return image


def count_frames(image: ImageFile.ImageFile, known: ImageFormat) -> int | None:
    """How many frames the header declares; None for a GIF or TIFF, whose header does not say."""
    if known not in _FORMATS_THAT_COUNT_FRAMES:
        return None
    return int(getattr(image, "n_frames", 1))


def orientation(image: Image.Image) -> int:
    """The EXIF orientation, 1 to 8; 1 (upright) where there is none or it makes no sense."""
    # Broken EXIF is common and says nothing about the pixels.
    with contextlib.suppress(Exception):
        found = int(image.getexif().get(ExifTags.Base.Orientation, 1))
        if found in _TURNS:
            return found
    return 1


def upright_size(size: tuple[int, int], turn: int) -> tuple[int, int]:
    """Width and height after :func:`turn_upright`."""
    return (size[1], size[0]) if turn >= _FIRST_SIDEWAYS_TURN else size


def turn_upright(image: Image.Image, turn: int) -> Image.Image:
    """The image as it was meant to be seen, given its EXIF orientation."""
    return image.transpose(_TURNS[turn]) if turn in _TURNS else image


def _check_tiles(image: ImageFile.ImageFile) -> None:
    """A TIFF is unpacked tile by tile, and a tile may be much larger than the image."""
    tags = getattr(image, "tag_v2", {})
    tile = tags.get(TiffImagePlugin.TILEWIDTH, 0) * tags.get(TiffImagePlugin.TILELENGTH, 0)
    if tile > max(image.width * image.height, TIFF_TILE_PIXELS):
        raise ImageTooLarge(f"The TIFF has tiles of {tile} pixels, far more than the image")


def _hold_pillow_to_our_rules(limits: ImageLimits) -> None:
    """Undo what any library may have set in the meantime; cheap enough for every image."""
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    PngImagePlugin.MAX_TEXT_MEMORY = PNG_TEXT_BYTES
    # A GIF may allocate a frame while it is opened, so Pillow must know the limit; it refuses above twice of it.
    Image.MAX_IMAGE_PIXELS = (limits.max_pixels + 1) // 2
    # Pillow warns of oddities in metadata, which concern nobody.
    warnings.filterwarnings("ignore", module=r"PIL\.")
