"""Files that are small and cost a decoder seconds or minutes, told from honest ones by their structure alone.

Pillow bounds the memory that a part of a file takes, not how many parts there are, and walks them in Python.
Each limit is far above what encoders write, and each walk here is bounded by its limit.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping

from tidegate.errors import ImageCorrupt, ImageTooLarge, UnsupportedFormat
from tidegate.formats import ImageFormat

MAX_JPEG_SCANS = 50
"""Each scan of a progressive JPEG visits the whole image again; encoders write about ten."""
MAX_JPEG_SEGMENTS = 2_000
"""Before the pixels; a colour profile takes at most 255 of them."""
MAX_JPEG_JUNK_BYTES = 4_096
"""Between those segments, where a decoder steps byte by byte."""
MAX_PNG_CHUNKS = 50_000
"""Of all kinds; an animation has two or three for each frame."""
MAX_PNG_COMPRESSED_CHUNKS = 64
"""Texts and profiles, each of which may inflate to a megabyte."""
MAX_GIF_BLOCKS = 20_000
"""Of comments and the like, 255 bytes each, before the first frame."""

# With its length for one to four components, so that metadata hardly ever looks like one.
_JPEG_SCAN = re.compile(rb"\xff\xda\x00(?:\x08\x01|\x0a\x02|\x0c\x03|\x0e\x04)")
_JPEG_START_OF_SCAN = 0xDA
_JPEG_BARE_MARKERS = frozenset({0x00, 0x01, *range(0xD0, 0xDA)})
_GIF_HEADER_BYTES = 13
_PNG_COMPRESSED = frozenset({b"iCCP", b"iTXt", b"zTXt"})
_BMP_RUN_LENGTH_CODED = frozenset({b"\x01\0\0\0", b"\x02\0\0\0"})


def screen(data: bytes, known: ImageFormat) -> None:
    """Refuse a file whose structure only makes sense as an attack on the decoder.

    Raises:
        ImageTooLarge: it has more scans, chunks or blocks than any honest file.
        ImageCorrupt: it is a JPEG with a header that never ends, or a PNG without an end.
        UnsupportedFormat: it is a BMP with run-length coding, which Pillow decodes in Python.
    """
    check = _CHECKS.get(known)
    if check:
        check(data)


def _screen_jpeg(data: bytes) -> None:
    if any(itertools.islice(_JPEG_SCAN.finditer(data), MAX_JPEG_SCANS, None)):
        raise ImageTooLarge(f"The JPEG has more than {MAX_JPEG_SCANS} scans")
    position, junk = 2, 0
    for _ in range(MAX_JPEG_SEGMENTS):
        start = data.find(b"\xff", position)
        body = start
        while data[body : body + 1] == b"\xff" and body - start <= MAX_JPEG_JUNK_BYTES:
            body += 1
        junk += body - position - 1
        marker = data[body : body + 1]
        if start < 0 or not marker or junk > MAX_JPEG_JUNK_BYTES:
            break
        if marker[0] == _JPEG_START_OF_SCAN:
            return
        length = 0 if marker[0] in _JPEG_BARE_MARKERS else int.from_bytes(data[body + 1 : body + 3], "big")
        position = body + 1 + length
    raise ImageCorrupt("The JPEG has no pixels within reach of its header")


def _screen_png(data: bytes) -> None:
    position, chunks, compressed = 8, 0, 0
    # Length, kind and checksum of a chunk take 12 bytes.
    while position + 12 <= len(data):
        kind = data[position + 4 : position + 8]
        if kind == b"IEND":
            return
        chunks += 1
        compressed += kind in _PNG_COMPRESSED
        if chunks > MAX_PNG_CHUNKS or compressed > MAX_PNG_COMPRESSED_CHUNKS:
            raise ImageTooLarge("The PNG has more chunks or compressed texts than are accepted")
        position += 12 + int.from_bytes(data[position : position + 4], "big")
    raise ImageCorrupt("The PNG is truncated: it has no end")


def _screen_gif(data: bytes) -> None:
    flags = data[10] if len(data) > _GIF_HEADER_BYTES else 0
    position = _GIF_HEADER_BYTES + (3 << (flags & 7) + 1 if flags & 0x80 else 0)
    in_extension = False
    for _ in range(MAX_GIF_BLOCKS):
        head = data[position : position + 1]
        if in_extension:
            in_extension = head > b"\0"
            position += 1 + int.from_bytes(head, "big")
        elif head in (b"", b",", b";"):
            return
        else:
            in_extension = head == b"!"
            position += 2 if in_extension else 1
    raise ImageTooLarge("The GIF has more comments than are accepted")


def _screen_bmp(data: bytes) -> None:
    if data[30:34] in _BMP_RUN_LENGTH_CODED:
        raise UnsupportedFormat("BMP with run-length coding is not accepted; save it as PNG")


_CHECKS: Mapping[ImageFormat, Callable[[bytes], None]] = {
    ImageFormat.JPEG: _screen_jpeg,
    ImageFormat.PNG: _screen_png,
    ImageFormat.GIF: _screen_gif,
    ImageFormat.BMP: _screen_bmp,
}
