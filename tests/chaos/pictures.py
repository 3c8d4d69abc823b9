"""Images that tell who they are, and the model that reads it out of them.

Each image is of one colour, which is its number; the model answers the means of red, green and blue, as raw scores. So
an answer that was meant for another image cannot go unnoticed.
"""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

from onnx import TensorProto
from PIL import Image

from tests.integration.odd_app import KILLER
from tests.integration.probe_models import add_model, channel_means

MODEL = "witness"

_CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "image" data_type: TYPE_UINT8 dims: [ 3, 4, 4 ] } ]
output [ { name: "means" data_type: TYPE_FP32 dims: [ 3 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { }
parameters { key: "tidegate.scores" value { string_value: "raw" } }
"""


def add_witness(repository: Path) -> None:
    """Put the model into a repository."""
    add_model(repository, MODEL, channel_means(TensorProto.UINT8), _CONFIG)


def picture(number: int, size: tuple[int, int] = (4, 4)) -> bytes:
    """The image with this number, below 2**24."""
    buffer = BytesIO()
    Image.new("RGB", size, (number >> 16 & 0xFF, number >> 8 & 0xFF, number & 0xFF)).save(buffer, "PNG")
    return buffer.getvalue()


def broken_picture(number: int) -> bytes:
    """An image that ends too early."""
    return picture(number)[:-20]


def killer_picture(number: int) -> bytes:
    """An image that kills the process that prepares it, in workers that are made for it."""
    return picture(number) + KILLER


def number_in(result: dict[str, Any]) -> int:
    """The number of the image that an answer was given for."""
    means: dict[int, int] = {each["class_id"]: round(each["score"]) for each in result["predictions"]}
    return means[0] << 16 | means[1] << 8 | means[2]
