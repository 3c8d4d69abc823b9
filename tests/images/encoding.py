"""Encoders for what Pillow does not write: PNG chunks, 16-bit colour, ICC profiles, YCCK."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
from numpy.typing import NDArray
from PIL import Image

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def png_chunk(kind: bytes, body: bytes) -> bytes:
    """One chunk with its length and checksum."""
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *, depth: int = 8, color: int = 2, chunks: bytes = b"", rows: bytes = b"") -> bytes:
    """A PNG of any kind, with more chunks before its pixels; without rows, one that holds no pixels."""
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)
    return (
        PNG_SIGNATURE
        + png_chunk(b"IHDR", header)
        + chunks
        + png_chunk(b"IDAT", zlib.compress(rows, 9))
        + png_chunk(b"IEND", b"")
    )


def png16(samples: NDArray[np.uint16], *, transparent: tuple[int, ...] = ()) -> bytes:
    """A PNG of 16-bit samples: ``[height, width]`` for grey, ``[height, width, 3]`` for RGB."""
    height, width = samples.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in samples)
    chunks = png_chunk(b"tRNS", struct.pack(f">{len(transparent)}H", *transparent)) if transparent else b""
    return png(width, height, depth=16, color=2 if samples.ndim == 3 else 0, chunks=chunks, rows=rows)


def icc_profile(name: str, red: tuple[float, ...], green: tuple[float, ...], blue: tuple[float, ...]) -> bytes:
    """A display profile with gamma 2.2 from the XYZ (D50) of its primaries.

    Source: ICC.1:2001-04, version 2 of the format.
    """
    curve = b"curv\0\0\0\0" + struct.pack(">IH", 1, round(2.2 * 256)) + b"\0\0"
    text = name.encode() + b"\0"
    tags = {
        b"desc": b"desc\0\0\0\0" + struct.pack(">I", len(text)) + text + bytes(78),
        b"cprt": b"text\0\0\0\0CC0\0",
        b"wtpt": _xyz(0.9642, 1.0, 0.8249),
        b"rXYZ": _xyz(*red),
        b"gXYZ": _xyz(*green),
        b"bXYZ": _xyz(*blue),
        b"rTRC": curve,
        b"gTRC": curve,
        b"bTRC": curve,
    }
    table, body = b"", b""
    start = 128 + 4 + 12 * len(tags)
    for tag, content in tags.items():
        padded = content + bytes(-len(content) % 4)
        table += tag + struct.pack(">II", start + len(body), len(content))
        body += padded
    header = struct.pack(">I4xI4s4s4s", start + len(body), 0x02100000, b"mntr", b"RGB ", b"XYZ ")
    header += struct.pack(">6H4s", 2026, 1, 1, 0, 0, 0, b"acsp") + bytes(28) + _xyz(0.9642, 1.0, 0.8249)[8:]
    return header.ljust(128, b"\0") + struct.pack(">I", len(tags)) + table + body


def display_p3() -> bytes:
    """A profile with the primaries of Display P3.

    Source: SMPTE EG 432-1 primaries, adapted to D50.
    """
    return icc_profile("Wide", (0.5151, 0.2412, -0.0011), (0.2919, 0.6922, 0.0419), (0.1572, 0.0666, 0.7841))


def ycck_jpeg(image: Image.Image) -> bytes:
    """A CMYK image as Photoshop writes it: inks as YCbCr, black inverted, Adobe's marker with transform 2."""
    cyan, magenta, yellow, black = image.convert("CMYK").split()
    luma = Image.merge("RGB", (cyan, magenta, yellow)).convert("YCbCr")
    # Pillow inverts all four channels as it writes them.
    stored = [*(channel.point(lambda value: 255 - value) for channel in luma.split()), black]
    target = io.BytesIO()
    Image.merge("CMYK", stored).save(target, "JPEG", quality=95, subsampling=0)
    data = target.getvalue()
    transform = data.index(b"Adobe") + 11
    return data[:transform] + b"\x02" + data[transform + 1 :]


def _xyz(x: float, y: float, z: float) -> bytes:
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(value * 65536) for value in (x, y, z)))
