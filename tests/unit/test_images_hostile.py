"""Bad files are refused by name, quickly, in little memory, and without a trace of Pillow."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from tests.images.corpus import FOLDERS, read
from tests.images.encoding import png
from tests.images.honest import encode
from tests.images.hostile import block_bomb, junk_bomb, many_frames_gif, scan_bomb, segment_bomb
from tests.images.pictures import texture
from tidegate.errors import ImageCorrupt, ImageTooLarge, RequestError, UnsupportedFormat
from worker.contract import Preprocessing, Squash
from worker.images import ImageFacts, ImageLimits, inspect, prepare

PLAN = Preprocessing(height=32, width=32, layout="NHWC", framing=Squash())
ERRORS = {"foreign": UnsupportedFormat, "oversized": ImageTooLarge, "broken": ImageCorrupt}
BAD = [(folder, name) for folder in ERRORS for name in FOLDERS[folder]]
ROOT = Path(__file__).parents[2]


def attempt(data: bytes, limits: ImageLimits | None = None) -> ImageFacts:
    """Prepare one image into a small tensor."""
    return prepare(data, plan=PLAN, limits=limits or ImageLimits(), out=np.empty((32, 32, 3), dtype=np.uint8))


def processor_seconds(work: Callable[[], object]) -> float:
    """What some work takes of this thread's processor time, whatever else the machine does."""
    started = time.thread_time()
    work()
    return time.thread_time() - started


@pytest.mark.parametrize(("folder", "name"), BAD)
def test_bad_file_is_refused_for_what_it_is(folder: str, name: str) -> None:
    """Foreign, oversized and broken files each get their own error, and no retry helps any of them."""
    with pytest.raises(ERRORS[folder]) as caught:
        attempt(read(folder, name))
    assert type(caught.value) is ERRORS[folder]
    assert not caught.value.retryable


def test_bad_files_cost_little_time_and_memory() -> None:
    """Each takes less than a hundred small images do, and all together under 50 MB, in a worker that has decoded."""
    probe = subprocess.run(
        [sys.executable, "-m", "tests.images.cost"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    costs = json.loads(probe.stdout)
    assert costs["files"] == len(BAD)
    assert costs["times_a_good_one"] < 100, costs
    assert costs["grown_mb"] < 50, costs


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (segment_bomb(100_000), ImageCorrupt),
        (junk_bomb(1_000_000), ImageCorrupt),
        (b"\xff\xd8" + b"\xff" * 1_000_000, ImageCorrupt),
        (block_bomb(1_000_000), ImageTooLarge),
        (scan_bomb(51), ImageTooLarge),
        (png(2, 2, chunks=(b"\0\0\0\0teSt" + bytes(4)) * 50_001), ImageTooLarge),
    ],
    ids=["segments", "junk", "fill", "blocks", "scans", "chunks"],
)
def test_endless_structure_is_refused_before_the_decoder_walks_it(
    data: bytes, error: type[RequestError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is all headers costs a scan of its bytes and no more: less than a few of Python's own of 1 MB."""
    opened: list[object] = []
    monkeypatch.setattr(Image, "open", lambda *given, **_: opened.append(given))

    def refuse() -> None:
        with pytest.raises(error):
            attempt(data)

    assert processor_seconds(refuse) < 5 * processor_seconds(lambda: sum(byte for byte in bytes(1_000_000)))
    assert opened == []


@pytest.mark.parametrize("data", [segment_bomb(500), junk_bomb(1_000), scan_bomb(5)], ids=["segments", "junk", "scans"])
def test_odd_but_honest_structure_is_accepted(data: bytes) -> None:
    """Limits on structure leave room for what cameras and editors really write."""
    assert attempt(data).width == 64


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "AVIF"])
@pytest.mark.parametrize("percent", [10, 50, 95, 99])
def test_truncated_file_is_corrupt(kind: str, percent: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Part of a picture never gets a score, also where a library has made Pillow tolerant."""
    data = encode(Image.fromarray(texture(160, 120)), kind)
    assert attempt(data).width == 160
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with pytest.raises(ImageCorrupt):
        attempt(data[: len(data) * percent // 100])


@pytest.mark.parametrize("percent", [10, 50, 95])
def test_truncated_progressive_jpeg_is_corrupt(percent: int) -> None:
    """A progressive JPEG shows all of the picture early, and must be whole all the same."""
    data = encode(Image.fromarray(texture(160, 120)), "JPEG", progressive=True)
    with pytest.raises(ImageCorrupt):
        attempt(data[: len(data) * percent // 100])


@pytest.mark.parametrize("data", [b"", b"\xff", b"\xff\xd8\xff", b"GIF89a", b"\x89PNG\r\n\x1a\n"])
def test_stub_of_a_file_is_refused(data: bytes) -> None:
    """Nothing, one byte or a bare signature is told apart from an image."""
    with pytest.raises((ImageCorrupt, UnsupportedFormat)):
        attempt(data)


def test_pixel_limit_is_exact_and_holds_above_pillows_own() -> None:
    """The configured limit decides, at the pixel; neither Pillow's warning nor its error gets in between."""
    data = png(1_000, 401, depth=1, color=0, rows=bytes(126 * 401))
    assert attempt(data, ImageLimits(max_pixels=401_000)).height == 401
    with pytest.raises(ImageTooLarge, match="401000 pixels; at most 400999"):
        attempt(data, ImageLimits(max_pixels=400_999))
    large = png(20_000, 10_000, depth=1, color=0, rows=bytes(2_501 * 10_000))
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        assert attempt(large, ImageLimits(max_pixels=200_000_000)).width == 20_000


def test_frame_limit_is_judged_by_the_header() -> None:
    """An animation of more frames than allowed is refused before its first is decoded."""
    with pytest.raises(ImageTooLarge, match="3 frames; at most 2"):
        attempt(read("honest", "frames.webp"), ImageLimits(max_frames=2))


def test_one_pixel_is_an_image() -> None:
    """The smallest image fills the tensor with its colour."""
    out = np.empty((32, 32, 3), dtype=np.uint8)
    prepare(png(1, 1, rows=b"\0\x07\x08\x09"), plan=PLAN, limits=ImageLimits(), out=out)
    assert out.reshape(-1, 3).tolist() == [[7, 8, 9]] * 1024


def test_first_frame_costs_the_same_whatever_follows() -> None:
    """A GIF of ten thousand frames is read as far as its first."""
    one, many = many_frames_gif(1), many_frames_gif(10_000)
    # Once, so that neither pays for what is made on first use.
    attempt(one)

    def cost(data: bytes) -> float:
        return processor_seconds(lambda: [attempt(data) for _ in range(20)])

    assert cost(many) < 10 * cost(one)


@pytest.mark.parametrize(
    ("name", "frames"),
    [
        ("frames.png", 3),
        ("frames.webp", 3),
        ("frames.avif", 3),
        ("camera_pair.mpo", 2),
        ("plain.jpg", 1),
        ("frames.gif", None),
        ("frames.tiff", None),
    ],
)
def test_inspect_tells_the_facts_of_the_header(name: str, frames: int | None) -> None:
    """A model that decodes itself gets the same judgement, without a pixel decoded."""
    assert inspect(read("honest", name), limits=ImageLimits()).frames == frames
    assert attempt(read("honest", name)).frames == frames


@pytest.mark.parametrize(("folder", "name"), [case for case in BAD if case[0] != "broken"])
def test_inspect_refuses_foreign_and_oversized_files(folder: str, name: str) -> None:
    """What must not reach our decoder must not reach the model's either."""
    with pytest.raises(ERRORS[folder]):
        inspect(read(folder, name), limits=ImageLimits())


@pytest.mark.parametrize("name", ["plain.jpg", "plain.avif"])
def test_memory_error_means_too_large(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where memory runs out in a decoder, the image was too large for this worker."""

    def exhausted(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(ImageFile.ImageFile, "load", exhausted)
    with pytest.raises(ImageTooLarge, match="more memory than there is"):
        attempt(read("honest", name))
