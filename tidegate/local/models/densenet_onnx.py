"""Fetches DenseNet-121 from the ONNX Model Zoo and makes it take batches.

The published file takes exactly one image, while ``model_repository/densenet_onnx/config.pbtxt`` batches up to 8. The
network itself, convolutions, poolings and concatenations, does not care how many there are, so freeing the axis in
the signature is enough; ONNX's shape inference confirms it, or the file is not written.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import httpx
import onnx

from tidegate.errors import TidegateError
from tidegate.local.models.files import write_whole

MODEL = "densenet_onnx"

_SOURCE_KEY = "tidegate.source_sha256"
_TIMEOUT = httpx.Timeout(30.0)


class FetchFailed(TidegateError):
    """The file did not arrive, or is not the one that was published; the message says which."""

    code = "fetch_failed"
    retryable = True


@dataclass(frozen=True, slots=True)
class Source:
    """A file on the internet.

    Attributes:
        url: where it is.
        sha256: of its bytes, in hexadecimal.
        size_bytes: exactly; more is not read.
    """

    url: str
    sha256: str
    size_bytes: int


DENSENET_12 = Source(
    url="https://huggingface.co/onnxmodelzoo/densenet-12/resolve/main/densenet-12.onnx",
    sha256="0294e7e88e5b3360de9b0fdc321baf9e6ef18b7f058c4536caae3b9f18ed9ed5",
    size_bytes=32726877,
)
"""The ONNX Model Zoo's DenseNet-121 of opset 12, in its present home.

Source: hash and size are in ``validated/vision/classification/densenet-121/model/densenet-12.onnx`` of
https://github.com/onnx/models, which keeps the large file's fingerprint.
"""


def fetch(repository: Path, *, source: Source = DENSENET_12) -> Path:
    """Put the model into a model repository and return its file; does nothing where it came before.

    Args:
        repository: the folder that holds ``densenet_onnx/config.pbtxt``.
        source: where it comes from.

    Raises:
        FetchFailed: there is no way to it, or it is not the published file.
        OSError: the folder cannot be written.
    """
    target = repository / MODEL / "1" / "model.onnx"
    if not _came_from(source, target):
        model = onnx.load_model_from_string(_download(source))
        free_batch_axis(model)
        model.metadata_props.add(key=_SOURCE_KEY, value=source.sha256)
        write_whole(target, model.SerializeToString())
    return target


def free_batch_axis(model: onnx.ModelProto) -> None:
    """Let the first axis of every input and output be of any size, in place.

    Raises:
        onnx.checker.ValidationError: the model is broken.
        onnx.shape_inference.InferenceError: an operator contradicts a free axis.
    """
    # Old files list their weights among the inputs.
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    for value in [*inputs, *model.graph.output]:
        value.type.tensor_type.shape.dim[0].dim_param = "batch"
    # Shapes noted inside still speak of one image.
    del model.graph.value_info[:]
    onnx.checker.check_model(model, full_check=True)


def _came_from(source: Source, target: Path) -> bool:
    """Whether our note of the source, which is plain text among the file's metadata, is in it."""
    return target.is_file() and source.sha256.encode() in target.read_bytes()


def _download(source: Source) -> bytes:
    content = bytearray()
    try:
        with httpx.stream("GET", source.url, follow_redirects=True, timeout=_TIMEOUT) as response:
            response.raise_for_status()
            for chunk in response.iter_bytes():
                content += chunk
                if len(content) > source.size_bytes:
                    break
    except httpx.HTTPError as error:
        raise FetchFailed(f"{source.url} cannot be fetched: {error}") from error
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise FetchFailed(f"{source.url} is not the file it was when its SHA-256 was {source.sha256}")
    return bytes(content)
