"""The ``tidegate.*`` parameters that a model's ``config.pbtxt`` may carry, read strictly.

A misspelt name or an unknown value is an error that names it: a typing mistake must not become a default,
and so a model that is served with another preprocessing than it was trained with.
"""

from __future__ import annotations

import difflib
import enum
import json
import math
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from worker.contract.preprocessing import (
    SCALINGS,
    Color,
    Fidelity,
    Framing,
    Interpolation,
    Layout,
    Pad,
    PerChannel,
    Preprocessing,
    Scaling,
    ShorterSide,
    Squash,
)

PREFIX = "tidegate."
NAMES = frozenset({"color", "crop", "fidelity", "interpolation", "output", "resize", "scaling", "scores", "size"})
"""Every parameter there is, without its prefix."""

Choice = TypeVar("Choice", bound=enum.StrEnum)


class ParameterError(ValueError):
    """A parameter is misspelt, means nothing, or contradicts another; the message names it."""


def own_parameters(parameters: Mapping[str, Any]) -> dict[str, str]:
    """Pick ours out of the ``parameters`` of a Triton configuration.

    Args:
        parameters: as Triton gives them, name to ``{"string_value": text}``.

    Returns:
        Name without prefix to its text, stripped.

    Raises:
        ParameterError: a name with our prefix is none of ours, or its value is empty.
    """
    found: dict[str, str] = {}
    for name, value in parameters.items():
        if not name.lower().startswith(PREFIX):
            continue
        short = name[len(PREFIX) :]
        if short not in NAMES or not name.startswith(PREFIX):
            near = difflib.get_close_matches(short.lower(), sorted(NAMES), n=1)
            hint = f"; did you mean {PREFIX}{near[0]}?" if near else ""
            raise ParameterError(f"{name} is not a parameter of Tidegate{hint}")
        text = str(value.get("string_value", "")).strip()
        if not text:
            raise ParameterError(f"{name} is empty")
        found[short] = text
    return found


def read_choice(parameters: Mapping[str, str], name: str, default: Choice) -> Choice:
    """Read one of a closed set of words, in any case.

    Raises:
        ParameterError: the text is none of them; the message lists them.
    """
    text = parameters.get(name, default)
    words = type(default)
    try:
        return words(text.lower())
    except ValueError:
        raise ParameterError(f"{PREFIX}{name} is {text!r}, which is none of {', '.join(words)}") from None


def read_size(text: str) -> tuple[int, int]:
    """Height and width from ``tidegate.size``: ``224``, or ``<height>x<width>`` such as ``192x256``.

    Raises:
        ParameterError: it is neither, or a side is zero.
    """
    match = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", text)
    if not match:
        raise ParameterError(f"{PREFIX}size is {text!r}, which is neither a side nor <height>x<width>")
    return int(match[1]), int(match[2] or match[1])


def read_preprocessing(parameters: Mapping[str, str], *, height: int, width: int, layout: Layout) -> Preprocessing:
    """Read the plan from what :func:`own_parameters` gave.

    Raises:
        ParameterError: a value means nothing, or two parameters contradict each other.
    """
    return Preprocessing(
        height=height,
        width=width,
        layout=layout,
        framing=_read_framing(parameters, height, width),
        interpolation=read_choice(parameters, "interpolation", Interpolation.BILINEAR),
        color=read_choice(parameters, "color", Color.RGB),
        scaling=_read_scaling(parameters.get("scaling", "none")),
        fidelity=read_choice(parameters, "fidelity", Fidelity.FAITHFUL),
    )


def _read_framing(parameters: Mapping[str, str], height: int, width: int) -> Framing:
    resize = parameters.get("resize", "squash").lower()
    crop = parameters.get("crop")
    if resize == "squash":
        return Squash() if crop is None else Squash(_read_fraction(crop, "with tidegate.resize=squash"))
    if resize == "pad":
        if crop is not None:
            raise ParameterError("tidegate.crop contradicts tidegate.resize=pad, which shows the whole image")
        return Pad()
    shorter = re.fullmatch(r"shorter:([1-9]\d{0,4})", resize)
    if not shorter:
        raise ParameterError(f"tidegate.resize is {resize!r}, which is none of squash, shorter:<pixels>, pad")
    return _read_shorter_side(int(shorter[1]), crop, height, width)


def _read_shorter_side(side: int, crop: str | None, height: int, width: int) -> ShorterSide:
    if crop is None:
        crop_height, crop_width = height, width
    elif re.fullmatch(r"[1-9]\d{1,4}", crop):
        crop_height = crop_width = int(crop)
    else:
        crop_height = crop_width = max(1, round(side * _read_fraction(crop, "or a number of pixels above 9")))
    if max(crop_height, crop_width) > side:
        raise ParameterError(
            f"tidegate.resize=shorter:{side} leaves less than the {crop_height}x{crop_width} that is cut out"
        )
    return ShorterSide(side=side, crop_height=crop_height, crop_width=crop_width)


def _read_fraction(text: str, where: str) -> float:
    try:
        fraction = float(text)
    except ValueError:
        fraction = math.nan
    if not 0 < fraction <= 1:
        raise ParameterError(f"tidegate.crop is {text!r}; {where} it must be above 0 and up to 1")
    return fraction


def _read_scaling(text: str) -> Scaling:
    preset = SCALINGS.get(text.lower())
    if preset:
        return preset
    try:
        document = json.loads(text)
        mean, std = document.pop("mean"), document.pop("std")
        scaling = Scaling(mean=_per_channel(mean), divisor=_per_channel(std))
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        document = None
    if document != {}:
        raise ParameterError(
            f"tidegate.scaling is {text!r}, which is neither {', '.join(SCALINGS)} nor "
            '{"mean": [r, g, b], "std": [r, g, b]} in units of 0..255'
        )
    if 0.0 in scaling.divisor:
        raise ParameterError("tidegate.scaling has a std of zero")
    return scaling


def _per_channel(value: object) -> PerChannel:
    numbers = value if isinstance(value, list) else [value] * 3
    red, green, blue = (_finite(number) for number in numbers)
    return red, green, blue


def _finite(number: object) -> float:
    if not isinstance(number, int | float) or isinstance(number, bool) or not math.isfinite(number):
        raise TypeError("not a finite number")
    return float(number)
