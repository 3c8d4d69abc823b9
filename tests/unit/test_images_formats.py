"""Telling formats and sizes by the first bytes, without an imaging library."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.images.corpus import FOLDERS, read
from tests.images.honest import HONEST
from tests.images.hostile import bmp, junk_bomb, segment_bomb
from tidegate.errors import ImageCorrupt, ImageTooLarge, UnsupportedFormat
from tidegate.formats import (
    ACCEPTED,
    HEAD_BYTES,
    MEDIA_TYPES,
    ImageFormat,
    ImageLimits,
    check_encoded,
    declared_size,
    sniff,
)

SUFFIXES = {
    "jpg": ImageFormat.JPEG,
    "mpo": ImageFormat.JPEG,
    "png": ImageFormat.PNG,
    "webp": ImageFormat.WEBP,
    "gif": ImageFormat.GIF,
    "bmp": ImageFormat.BMP,
    "tiff": ImageFormat.TIFF,
    "avif": ImageFormat.AVIF,
}
SIZED = ("plain.jpg", "progressive.jpg", "camera_pair.mpo", "plain.png", "plain.webp", "plain.gif", "plain.bmp")


@pytest.mark.parametrize("name", HONEST)
def test_sniff_knows_every_accepted_format_by_its_head(name: str) -> None:
    """The first bytes are enough; a name or declared type is never asked for."""
    data = read("honest", name)
    assert sniff(data[:HEAD_BYTES]) is SUFFIXES[name.rpartition(".")[2]]


@pytest.mark.parametrize("name", sorted(set(FOLDERS["foreign"]) - {"run_length.bmp"}))
def test_sniff_refuses_every_other_format(name: str) -> None:
    """Documents, archives and pictures of other kinds are refused under any name, with what is accepted."""
    data = read("foreign", name)
    assert sniff(data) is None
    with pytest.raises(UnsupportedFormat, match=ACCEPTED):
        check_encoded(data, ImageLimits())


def test_check_encoded_names_heic_as_what_it_is() -> None:
    """The picture of a phone deserves a better answer than that it is none."""
    with pytest.raises(UnsupportedFormat, match="HEIC is not accepted; accepted are JPEG"):
        check_encoded(read("foreign", "heic.jpg"), ImageLimits())


@pytest.mark.parametrize("name", SIZED)
def test_declared_size_reads_the_header(name: str) -> None:
    """Width and height are known before any decoder runs."""
    assert declared_size(read("honest", name)) == (64, 48)


@pytest.mark.parametrize(
    ("data", "size"),
    [
        (read("honest", "hidden_red.webp"), (32, 32)),
        (read("honest", "turned_6.webp"), (48, 64)),
        (read("oversized", "bomb_16383.webp"), (16_383, 16_383)),
        (read("oversized", "bomb_65000.jpg"), (65_000, 65_000)),
        (read("oversized", "bomb_100000.png"), (100_000, 100_000)),
        (bmp(40, -30), (40, 30)),
        (b"BM" + bytes(12) + b"\x0c\0\0\0" + b"\x28\0\x1e\0", (40, 30)),
    ],
)
def test_declared_size_reads_every_variant(data: bytes, size: tuple[int, int]) -> None:
    """Lossless, extended and old headers, and rows that run downwards, make no difference."""
    assert declared_size(data) == size


@pytest.mark.parametrize("name", ["plain.tiff", "plain.avif"])
def test_declared_size_leaves_other_formats_to_the_decoder(name: str) -> None:
    """A TIFF or AVIF tells its size in no fixed place."""
    assert declared_size(read("honest", name)) is None


@pytest.mark.parametrize("data", [segment_bomb(2_000), b"\xff\xd8" + b"\xff" * 100_000, b"\xff\xd8\xff\xd9"])
def test_declared_size_gives_up_on_a_header_without_end(data: bytes) -> None:
    """The work is bounded, whatever the bytes are."""
    assert declared_size(data) is None


def test_declared_size_steps_over_junk() -> None:
    """Bytes between segments, as some cameras write, do not hide the size."""
    assert declared_size(junk_bomb(100)) == (64, 48)


@given(
    head=st.sampled_from(
        [b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"RIFFabcdWEBPVP8", b"GIF89a", b"BM", b"    ftypavif"]
    ),
    tail=st.binary(max_size=64),
)
def test_declared_size_never_fails_on_hostile_bytes(head: bytes, tail: bytes) -> None:
    """A size or nothing; never an exception."""
    size = declared_size(head + tail)
    assert size is None or (size[0] >= 0 and size[1] >= 0)


@pytest.mark.parametrize(
    ("width", "height", "allowed"),
    [(1000, 1000, True), (1000, 1001, False), (1, 65_500, True), (65_501, 1, False), (1, 1, True)],
)
def test_limits_hold_exactly_at_their_value(width: int, height: int, *, allowed: bool) -> None:
    """At the limit is in, one beyond is out."""
    limits = ImageLimits(max_pixels=1_000_000)
    if allowed:
        limits.check_size(width, height)
    else:
        with pytest.raises(ImageTooLarge, match=f"{width}x{height}"):
            limits.check_size(width, height)


def test_limits_tell_an_empty_file_from_a_large_one() -> None:
    """No bytes are a broken image, too many are a large one."""
    limits = ImageLimits(max_bytes=10)
    limits.check_bytes(10)
    with pytest.raises(ImageCorrupt, match="empty"):
        limits.check_bytes(0)
    with pytest.raises(ImageTooLarge, match="11 bytes; at most 10"):
        limits.check_bytes(11)


def test_every_format_has_a_media_type_of_its_own() -> None:
    """The API can name each format that it takes, and no name means two."""
    names = [name for names in MEDIA_TYPES.values() for name in names]
    assert set(MEDIA_TYPES) == set(ImageFormat)
    assert len(names) == len(set(names))


def test_formats_need_neither_numpy_nor_pillow() -> None:
    """The API judges images without the worker's libraries."""
    probe = "import sys, tidegate.formats; sys.exit(bool({'numpy', 'PIL'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0
