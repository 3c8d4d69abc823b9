"""How an image becomes a tensor: the plan, as data.

:mod:`worker.contract.parameters` reads a plan out of a model's configuration, and :mod:`worker.images` carries it
out. The defaults do what Triton's own image client does without options: the whole image, squashed to the
model's size with a bilinear filter, RGB, pixel values 0..255.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Layout = Literal["NHWC", "NCHW"]
PerChannel = tuple[float, float, float]


class Interpolation(enum.StrEnum):
    """The resampling filter, antialiased as in Pillow (all but ``nearest``)."""

    NEAREST = "nearest"
    BOX = "box"
    BILINEAR = "bilinear"
    HAMMING = "hamming"
    BICUBIC = "bicubic"
    LANCZOS = "lanczos"


class Color(enum.StrEnum):
    """The order of a tensor's channels."""

    RGB = "rgb"
    BGR = "bgr"


class Fidelity(enum.StrEnum):
    """How closely the pixels must follow a full decode, a full resize and then a crop.

    ``docs/images.md`` has what each saves and costs, measured.
    """

    FAITHFUL = "faithful"
    """Exactly; for a JPEG that is decoded at a smaller scale, within 2/255."""
    FAST = "fast"
    """Closely: a large JPEG may be some 15/255 off along edges, and half a level on average."""

    @property
    def jpeg_margin(self) -> float:
        """Pixels in each direction that a JPEG decoder must leave for each pixel of the tensor."""
        return {Fidelity.FAITHFUL: 4.0, Fidelity.FAST: 1.0}[self]


@dataclass(frozen=True)
class Squash:
    """The centre of the image, resized to the model's size whatever its aspect.

    Attributes:
        fraction: how much of the width and of the height is kept, above 0 and up to 1.
    """

    fraction: float = 1.0


@dataclass(frozen=True)
class ShorterSide:
    """The image resized, aspect kept, until its shorter side is ``side``; then the centre is cut out.

    Attributes:
        side: length of the shorter side after the resize, in pixels.
        crop_height: height of what is cut out, in pixels of the resized image; at most ``side``.
        crop_width: width of it, likewise. A crop of another size than the model's is resized to it.
    """

    side: int
    crop_height: int
    crop_width: int


@dataclass(frozen=True)
class Pad:
    """The whole image, aspect kept, as large as fits the model's size, centred on black.

    Source: TensorFlow's ``tf.image.resize_with_pad``, which pads with zeros.
    """


Framing = Squash | ShorterSide | Pad


@dataclass(frozen=True)
class Scaling:
    """``(value - mean) / divisor`` for each channel, with values from 0 to 255.

    Attributes:
        mean: for red, green and blue, in this order even where the model takes BGR.
        divisor: likewise; never zero.
    """

    mean: PerChannel = (0.0, 0.0, 0.0)
    divisor: PerChannel = (1.0, 1.0, 1.0)

    @property
    def is_identity(self) -> bool:
        """Whether values stay what they are."""
        return self == Scaling()

    @property
    def peak(self) -> float:
        """The largest magnitude that can come out."""
        return max(
            abs((value - mean) / divisor)
            for mean, divisor in zip(self.mean, self.divisor, strict=True)
            for value in (0, 255)
        )


SCALINGS: Mapping[str, Scaling] = {
    "none": Scaling(),
    "unit": Scaling(divisor=(255.0, 255.0, 255.0)),
    "inception": Scaling(mean=(127.5, 127.5, 127.5), divisor=(127.5, 127.5, 127.5)),
    "vgg": Scaling(mean=(123.0, 117.0, 104.0)),
    "torchvision": Scaling(
        mean=(0.485 * 255, 0.456 * 255, 0.406 * 255), divisor=(0.229 * 255, 0.224 * 255, 0.225 * 255)
    ),
}
"""The presets of ``tidegate.scaling``.

Source: ``INCEPTION`` (x / 127.5 - 1) and ``VGG`` (minus 123, 117, 104) of ``preprocess`` in
triton-inference-server/client, ``src/python/examples/image_client.py``; the ImageNet mean and deviation
((x / 255 - mean) / std) of ``torchvision/transforms/_presets.py``.
"""


@dataclass(frozen=True)
class Preprocessing:
    """Everything that happens to pixels between the decoder and the tensor.

    Attributes:
        height: of the tensor, in pixels.
        width: of the tensor, in pixels.
        layout: ``NHWC`` or ``NCHW``.
        framing: which part of the image is seen, and how it is fitted to the tensor.
        interpolation: the resampling filter.
        color: the order of the channels.
        scaling: what happens to the values.
        fidelity: how closely all this is done.
    """

    height: int
    width: int
    layout: Layout
    framing: Framing = Squash()
    interpolation: Interpolation = Interpolation.BILINEAR
    color: Color = Color.RGB
    scaling: Scaling = SCALINGS["none"]
    fidelity: Fidelity = Fidelity.FAITHFUL
