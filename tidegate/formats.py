"""Which image formats are accepted, told by their first bytes, and how large an image may be.

Both sides use it: the API to refuse early, without an imaging library, and the worker before it lets a
decoder near the bytes. What a client declares, a content type or a file name, counts for nothing.
"""

from __future__ import annotations

import enum
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from tidegate.errors import ImageCorrupt, ImageTooLarge, UnsupportedFormat

HEAD_BYTES = 512
"""As much of a file as :func:`sniff` looks at."""


class ImageFormat(enum.StrEnum):
    """A format that is accepted."""

    JPEG = "jpeg"
    """Also the MPO of cameras that store a second picture behind the first."""
    PNG = "png"
    WEBP = "webp"
    GIF = "gif"
    BMP = "bmp"
    TIFF = "tiff"
    AVIF = "avif"


MEDIA_TYPES: Mapping[ImageFormat, tuple[str, ...]] = {
    ImageFormat.JPEG: ("image/jpeg", "image/jpg", "image/pjpeg", "image/mpo"),
    ImageFormat.PNG: ("image/png", "image/apng", "image/x-png"),
    ImageFormat.WEBP: ("image/webp",),
    ImageFormat.GIF: ("image/gif",),
    ImageFormat.BMP: ("image/bmp", "image/x-ms-bmp"),
    ImageFormat.TIFF: ("image/tiff",),
    ImageFormat.AVIF: ("image/avif",),
}
"""What each format is called on the web, the registered name first."""

ACCEPTED = "JPEG, PNG, WebP, GIF, BMP, TIFF and AVIF"
"""The formats in words, for messages."""


@dataclass(frozen=True)
class ImageLimits:
    """How large an image may be; all of it is judged before a pixel is decoded.

    Attributes:
        max_bytes: of the encoded file.
        max_pixels: width times height. A decoded pixel takes four bytes, so the default is 200 MB.
        max_side: longest side in pixels. The default is the most that a JPEG decoder takes anyhow.
            Source: ``JPEG_MAX_DIMENSION`` of libjpeg.
        max_frames: of an animation or a document, where the header tells. Only the first is decoded.
    """

    max_bytes: int = 10 * 1024 * 1024
    max_pixels: int = 50_000_000
    max_side: int = 65_500
    max_frames: int = 10_000

    def check_bytes(self, count: int) -> None:
        """Judge the size of the encoded file.

        Raises:
            ImageCorrupt: it is empty.
            ImageTooLarge: it is larger than ``max_bytes``.
        """
        if count == 0:
            raise ImageCorrupt("The image is empty")
        if count > self.max_bytes:
            raise ImageTooLarge(f"The image has {count} bytes; at most {self.max_bytes} are accepted")

    def check_size(self, width: int, height: int) -> None:
        """Judge the size in pixels.

        Raises:
            ImageCorrupt: a side is zero.
            ImageTooLarge: a side or the area is larger than allowed.
        """
        if width < 1 or height < 1:
            raise ImageCorrupt(f"The image declares {width}x{height} pixels, which is none")
        if max(width, height) > self.max_side:
            raise ImageTooLarge(f"The image is {width}x{height}; a side may have at most {self.max_side} pixels")
        if width * height > self.max_pixels:
            raise ImageTooLarge(
                f"The image is {width}x{height}, {width * height} pixels; at most {self.max_pixels} are accepted"
            )

    def check_frames(self, count: int) -> None:
        """Judge the number of frames.

        Raises:
            ImageTooLarge: there are more than ``max_frames``.
        """
        if count > self.max_frames:
            raise ImageTooLarge(f"The image has {count} frames; at most {self.max_frames} are accepted")


def check_encoded(data: bytes, limits: ImageLimits) -> ImageFormat:
    """Judge an encoded image by what its header says, in well under a millisecond.

    Raises:
        ImageCorrupt: it is empty, or declares no pixels.
        UnsupportedFormat: it is in none of the formats that are accepted.
        ImageTooLarge: it has more bytes, or declares more pixels, than allowed.
    """
    limits.check_bytes(len(data))
    known = sniff(data[:HEAD_BYTES])
    if known is None:
        heic = _brands(data[:HEAD_BYTES]) & _HEIC_BRANDS
        refusal = "HEIC is not accepted" if heic else "The bytes are no image in an accepted format"
        raise UnsupportedFormat(f"{refusal}; accepted are {ACCEPTED}")
    size = declared_size(data)
    if size is not None:
        limits.check_size(*size)
    return known


def sniff(head: bytes) -> ImageFormat | None:
    """Tell the format by the magic bytes; None where it is none that is accepted.

    Args:
        head: the first bytes of the file; :data:`HEAD_BYTES` of them are always enough.
    """
    for known, magic in _MAGIC.items():
        if magic.match(head):
            return known
    return ImageFormat.AVIF if _brands(head) & _AVIF_BRANDS else None


def declared_size(data: bytes) -> tuple[int, int] | None:
    """Width and height as the header of a JPEG, PNG, WebP, GIF or BMP declares them.

    None for other formats, and where the header is broken: the decoder has the last word. The work is
    bounded whatever the bytes are.
    """
    known = sniff(data[:HEAD_BYTES])
    reader = _SIZE_READERS.get(known) if known else None
    try:
        return reader(data) if reader else None
    except (struct.error, IndexError):
        return None


_MAGIC: Mapping[ImageFormat, re.Pattern[bytes]] = {
    ImageFormat.JPEG: re.compile(rb"\xff\xd8\xff"),
    ImageFormat.PNG: re.compile(rb"\x89PNG\r\n\x1a\n"),
    ImageFormat.WEBP: re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
    ImageFormat.GIF: re.compile(rb"GIF8[79]a"),
    # "BM" alone may start a text, so the length of the second header must be one that exists.
    ImageFormat.BMP: re.compile(rb"BM.{12}[\x0c\x28\x34\x38\x40\x6c\x7c]\0\0\0", re.DOTALL),
    ImageFormat.TIFF: re.compile(rb"II[*+]\0|MM\0[*+]"),
}
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIC_BRANDS = frozenset({b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"})


def _brands(head: bytes) -> set[bytes]:
    """The brands of an ISO base media file, its major one first among them; empty for anything else."""
    if head[4:8] != b"ftyp":
        return set()
    end = min(int.from_bytes(head[:4], "big"), len(head))
    # Bytes 12 to 16 are the minor version, which is no brand.
    return {head[8:12]} | {head[start : start + 4] for start in range(16, end - 3, 4)}


def _png_size(data: bytes) -> tuple[int, int] | None:
    width, height = struct.unpack_from(">II", data, 16)
    return (width, height) if data[12:16] == b"IHDR" else None


def _gif_size(data: bytes) -> tuple[int, int]:
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _bmp_size(data: bytes) -> tuple[int, int]:
    if data[14] == _OS2_HEADER_BYTES:
        width, height = struct.unpack_from("<HH", data, 18)
        return width, height
    width, height = struct.unpack_from("<Ii", data, 18)
    # A negative height says that the rows run from top to bottom.
    return width, abs(height)


def _webp_size(data: bytes) -> tuple[int, int] | None:
    chunk = data[12:16]
    if chunk == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if chunk == b"VP8L":
        bits = struct.unpack_from("<I", data, 21)[0]
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if chunk == b"VP8 ":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    position = 2
    for _ in range(_MAX_JPEG_SEGMENTS):
        position = data.find(b"\xff", position)
        marker = data[position + 1] if position >= 0 else _END_OF_IMAGE
        if marker in _FRAME_MARKERS:
            height, width = struct.unpack_from(">HH", data, position + 5)
            return width, height
        if marker in (_START_OF_SCAN, _END_OF_IMAGE):
            return None
        if marker in _BARE_MARKERS:
            position += 1 if marker == _FILL else 2
        else:
            position += 2 + struct.unpack_from(">H", data, position + 2)[0]
    return None


_OS2_HEADER_BYTES = 12
_MAX_JPEG_SEGMENTS = 1024
_START_OF_SCAN, _END_OF_IMAGE, _FILL = 0xDA, 0xD9, 0xFF
_BARE_MARKERS = frozenset({0x00, 0x01, _FILL, *range(0xD0, 0xD9)})
# C4, C8 and CC are tables. Source: ITU-T T.81, table B.1.
_FRAME_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}

_SIZE_READERS = {
    ImageFormat.JPEG: _jpeg_size,
    ImageFormat.PNG: _png_size,
    ImageFormat.WEBP: _webp_size,
    ImageFormat.GIF: _gif_size,
    ImageFormat.BMP: _bmp_size,
}
