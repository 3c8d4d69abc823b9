"""Damaged files, at random but repeatable: whatever the bytes, only documented errors."""

from __future__ import annotations

import random
import time
import warnings

import numpy as np

from tests.images.corpus import read
from tests.images.honest import HONEST
from tidegate.errors import ImageCorrupt, ImageTooLarge, UnsupportedFormat
from worker.contract import Preprocessing, ShorterSide
from worker.images import ImageLimits, prepare

CASES = 5_000
"""How many to try. Raise it for a longer search; case ``n`` is the same whatever it is."""
SEED = 20_261_101
CASE_SECONDS = 5.0
"""The longest that one case may take, far above any: a hang is a failure, a busy machine is none."""
LIMITS = ImageLimits(max_pixels=1_000_000)
PLAN = Preprocessing(height=32, width=32, layout="NHWC", framing=ShorterSide(36, 32, 32))
EXTREMES = (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff\xff\xff", b"\0\0\0\x80", b"\xff\xda", b"IEND")


def damaged(case: int) -> bytes:
    """One of the good files with a few bytes changed, lost, added or set to an extreme."""
    chance = random.Random(SEED + case)
    data = bytearray(read("honest", chance.choice(sorted(HONEST))))
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        place = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[place : place + 1] = chance.randbytes(1)
            case 1:
                del data[place : place + chance.randrange(1, 64)]
            case 2:
                data[place:place] = chance.randbytes(chance.randrange(1, 16))
            case _:
                extreme = chance.choice(EXTREMES)
                data[place : place + len(extreme)] = extreme
    return bytes(data)


def test_damaged_files_give_pixels_or_a_documented_error() -> None:
    """No damage makes another exception, a warning, or a decoder that does not come back."""
    outcomes: dict[str, int] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for case in range(CASES):
            started = time.monotonic()
            outcome = outcome_of(damaged(case))
            assert time.monotonic() - started < CASE_SECONDS, f"case {case} took too long"
            assert outcome in {"pixels", "ImageCorrupt", "ImageTooLarge", "UnsupportedFormat"}, (
                f"case {case}: {outcome}"
            )
            outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert {"pixels", "ImageCorrupt", "UnsupportedFormat"} <= set(outcomes), "the damage is not of every kind"


def outcome_of(data: bytes) -> str:
    """What became of one file; the name of an error that is not documented, too."""
    try:
        prepare(data, plan=PLAN, limits=LIMITS, out=np.empty((32, 32, 3), dtype=np.uint8))
    except (ImageCorrupt, ImageTooLarge, UnsupportedFormat) as documented:
        return type(documented).__name__
    except Exception as other:  # the very thing that is looked for
        return repr(other)
    return "pixels"
