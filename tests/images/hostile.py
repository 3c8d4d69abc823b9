"""The bad half of the corpus: files that must be refused, quickly and in few bytes of memory."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping

import numpy as np
from PIL import Image

from tests.images.encoding import png, png_chunk
from tests.images.honest import encode
from tests.images.pictures import quadrants

_MEGABYTE = 1024 * 1024


def text_bomb(kind: bytes, count: int, megabytes: int) -> bytes:
    """A PNG with compressed texts, each of which unpacks to so much."""
    packed = zlib.compress(bytes(megabytes * _MEGABYTE), 9)
    head = {b"zTXt": b"Comment\0\0", b"iCCP": b"name\0\0", b"iTXt": b"Comment\0\x01\0\0\0"}[kind]
    return png(2, 2, chunks=png_chunk(kind, head + packed) * count, rows=bytes(14))


def scan_bomb(scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated: each visits every block of the image again."""
    data = encode(quadrants(), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def segment_bomb(segments: int) -> bytes:
    """A JPEG with empty comments before its pixels."""
    return b"\xff\xd8" + b"\xff\xfe\0\x02" * segments + encode(quadrants(), "JPEG")[2:]


def junk_bomb(count: int) -> bytes:
    """A JPEG with bytes that belong to no segment before its pixels."""
    return b"\xff\xd8\xff\xfe\0\x02" + bytes(count) + encode(quadrants(), "JPEG")[2:]


def block_bomb(blocks: int) -> bytes:
    """A GIF with a comment of one-byte blocks before its pixels."""
    return b"GIF89a\x01\0\x01\0\0\0\0" + b"!\xfe" + b"\x01x" * blocks + b"\0;"


def run_length_bmp() -> bytes:
    """A BMP of 50 million pixels, all of them one empty run."""
    header = struct.pack("<IiiHHIIiiII", 40, 7000, 7000, 1, 8, 1, 4, 0, 0, 256, 0)
    palette = bytes(1024)
    return b"BM" + struct.pack("<IHHI", 54 + 1024 + 4, 0, 0, 54 + 1024) + header + palette + b"\0\0\0\x01"


def bmp(width: int, height: int) -> bytes:
    """The header of a BMP without its pixels."""
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 24, 0, 0, 0, 0, 0, 0)
    return b"BM" + struct.pack("<IHHI", 54, 0, 0, 54) + header


def tiff(width: int, height: int, *, tile: int | None = None) -> bytes:
    """A deflated TIFF with the pixels of a small one; with ``tile``, cut into tiles of that side."""
    pixels = zlib.compress(bytes(64))
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 8), (262, 3, 1, 1)]
    if tile:
        entries += [(322, 4, 1, tile), (323, 4, 1, tile), (324, 4, 1, 8), (325, 4, 1, len(pixels))]
    else:
        entries += [(273, 4, 1, 8), (278, 4, 1, height), (279, 4, 1, len(pixels))]
    body = pixels + bytes(len(pixels) % 2)
    table = b"".join(struct.pack("<HHII", *entry) for entry in sorted(entries))
    return b"II*\0" + struct.pack("<I", 8 + len(body)) + body + struct.pack("<H", len(entries)) + table + bytes(4)


def late_frame_gif(control: bytes = b"") -> bytes:
    """A GIF of one pixel whose first frame is larger; ``control`` may say that it is to be disposed of."""
    return b"GIF89a\x01\0\x01\0\0\0\0" + control + b",\0\0\0\0" + struct.pack("<HH", 60_000, 60_000) + b"\0\x02\0;"


def many_frames_gif(count: int, *, side: int = 16) -> bytes:
    """A GIF whose first frame is red, and whose others are of one pixel."""
    first = encode(Image.new("RGB", (side, side), (254, 0, 0)), "GIF")
    dot = b"!\xf9\x04\0\0\0\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0"
    return first[:-1] + dot * (count - 1) + b";"


def _zip() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("x.jpg", b"no image")
    return target.getvalue()


def _not_numbers() -> bytes:
    return encode(Image.fromarray(np.array([[0.5, np.nan]], dtype=np.float32)), "TIFF")


def _rewritten_size(data: bytes, width: int, height: int) -> bytes:
    """A JPEG that declares another size than it has."""
    frame = data.index(b"\xff\xc0") + 5
    return data[:frame] + struct.pack(">HH", height, width) + data[frame + 4 :]


FOREIGN: Mapping[str, Callable[[], bytes]] = {
    "eps.jpg": lambda: encode(quadrants(), "EPS"),
    "psd.jpg": lambda: b"8BPS\0\x01" + bytes(6) + struct.pack(">HIIHH", 3, 8, 8, 8, 3) + bytes(64),
    "fits.jpg": lambda: b"SIMPLE  =                    T".ljust(2880),
    "svg.jpg": lambda: b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
    "pdf.jpg": lambda: encode(quadrants(), "PDF"),
    "icns.jpg": lambda: b"icns" + struct.pack(">I", 16) + b"ic07" + struct.pack(">I", 8),
    "html.jpg": lambda: b"<!doctype html><title>not found</title>",
    "zip.jpg": _zip,
    "heic.jpg": lambda: struct.pack(">I", 24) + b"ftypheic\0\0\0\0mif1heic" + bytes(64),
    "jpeg2000.jpg": lambda: encode(quadrants(), "JPEG2000"),
    "text.bmp": lambda: b"BMW is a car maker, and this is no bitmap at all, however long it goes on.",
    "run_length.bmp": run_length_bmp,
}
"""Files in none of the formats that are accepted, most of them named as if they were."""

OVERSIZED: Mapping[str, Callable[[], bytes]] = {
    "bomb_12000.png": lambda: png(12_000, 12_000),
    "bomb_100000.png": lambda: png(100_000, 100_000),
    "wide_65535.png": lambda: png(65_535, 1, rows=bytes(1 + 3 * 65_535)),
    "bomb_65000.jpg": lambda: _rewritten_size(encode(quadrants(), "JPEG"), 65_000, 65_000),
    "bomb_65000.gif": lambda: b"GIF89a" + struct.pack("<HH", 65_000, 65_000) + bytes(3) + b";",
    "bomb_20000.bmp": lambda: bmp(20_000, 20_000),
    "bomb_16383.webp": lambda: b"RIFF\x1e\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xfe\x3f\0\xfe\x3f\0" + bytes(8),
    "bomb_60000.tiff": lambda: tiff(60_000, 60_000),
    "tile_30000.tiff": lambda: tiff(64, 64, tile=30_000),
    "late_frame.gif": late_frame_gif,
    "disposed_frame.gif": lambda: late_frame_gif(b"!\xf9\x04\x08\0\0\0\0"),
    "one_text.png": lambda: text_bomb(b"zTXt", 1, 16),
    "many_texts.png": lambda: text_bomb(b"zTXt", 70, 1),
    "many_profiles.png": lambda: text_bomb(b"iCCP", 70, 1),
    "many_scans.jpg": lambda: scan_bomb(200),
}
"""Small files that declare, or unpack to, more than the limits allow."""

BROKEN: Mapping[str, Callable[[], bytes]] = {
    "empty.jpg": lambda: b"",
    "no_pixels.png": lambda: png(0, 0),
    "no_height.jpg": lambda: _rewritten_size(encode(quadrants(), "JPEG"), 64, 0),
    "header_only.png": lambda: png(64, 64),
    "random.jpg": lambda: b"\xff\xd8\xff\xe0" + np.random.default_rng(7).bytes(2_000),
    "random.webp": lambda: (
        b"RIFF\xd0\x07\0\0WEBPVP8 \xc4\x07\0\0\x30\x01\0\x9d\x01\x2a\x40\0\x40\0"
        + np.random.default_rng(8).bytes(1_978)
    ),
    "random.avif": lambda: struct.pack(">I", 24) + b"ftypavif\0\0\0\0mif1avif" + np.random.default_rng(9).bytes(2_000),
    "not_numbers.tiff": _not_numbers,
}
"""Files in an accepted format that no decoder can read to the end."""
