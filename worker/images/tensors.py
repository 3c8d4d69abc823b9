"""Pixels into the batch array: channel order, layout, scaling and type in one pass.

A pixel has only 256 values, so scaling is a table per channel, computed once in double precision: exact to
the last bit of FP16 and BF16, and faster than arithmetic in either.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from worker.contract import Color, Preprocessing, Scaling


def write_tensor(pixels: NDArray[np.uint8], *, plan: Preprocessing, out: NDArray[Any]) -> None:
    """Write one image.

    Args:
        pixels: uint8 ``[height, width, 3]``, RGB.
        plan: says layout, channel order and scaling.
        out: ``[height, width, 3]`` or ``[3, height, width]`` by the plan's layout, of the model's type. An
            array of uint8 takes the pixels as they are.
    """
    planes = out if plan.layout == "NCHW" else out.transpose(2, 0, 1)
    sources = pixels.transpose(2, 0, 1)
    order = (0, 1, 2) if plan.color is Color.RGB else (2, 1, 0)
    if out.dtype == np.uint8:
        planes[...] = sources if plan.color is Color.RGB else sources[::-1]
        return
    tables = _tables(plan.scaling, out.dtype)
    for plane, channel in zip(planes, order, strict=True):
        # Clipping changes nothing for a byte, but spares numpy a copy that checks the bounds.
        np.take(tables[channel], sources[channel], out=plane, mode="clip")


@functools.lru_cache(maxsize=32)
def _tables(scaling: Scaling, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What each byte becomes: ``[3, 256]`` of ``dtype``, for red, green and blue."""
    values = np.arange(256, dtype=np.float64)
    rows = [(values - mean) / divisor for mean, divisor in zip(scaling.mean, scaling.divisor, strict=True)]
    tables: NDArray[Any] = np.stack(rows).astype(dtype)
    tables.setflags(write=False)
    return tables
