"""The quadrant probe: a classifier whose dozen logits are an image's mean red, green and blue in each quarter.

So an answer tells of orientation, channel order, crop, scaling and alpha mistakes. :class:`Variant` makes it in
every form in which a repository may hold a classifier; whatever the form, the answer is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper
from PIL import Image

from tests.integration.probe_models import add_model, onnx_model
from worker.contract import Layout

CLASSES = 12
LABELS = tuple(
    f"{color} {corner}"
    for color in ("red", "green", "blue")
    for corner in ("top left", "top right", "bottom left", "bottom right")
)
#: What the means are divided by, so that a softmax of them still tells them apart.
DIVISOR = 32.0

Batching = Literal["max_batch_size", "leading -1", "leading 1", "reshape", "none"]
Datatype = Literal["UINT8", "FP16", "FP32", "STRING"]

_ELEMENTS = {"UINT8": TensorProto.UINT8, "FP16": TensorProto.FLOAT16, "FP32": TensorProto.FLOAT}


@dataclass(frozen=True)
class Variant:
    """One form of the probe.

    Attributes:
        layout: of the input.
        datatype: of the input; STRING takes the encoded image.
        batching: how it takes batches.
        height: of the image that it sees, even.
        width: likewise.
        open_size: whether its configuration leaves the size open, so that a parameter must choose it.
        trailing_ones: whether its output is ``[C, 1, 1]``, as a convolution leaves it.
        softmax: whether it has one inside.
        half_output: whether its output is FP16.
        decoy_output: whether there is another output, which a parameter must rule out.
        label_file: whether its classes have names.
        parameters: more ``tidegate.*`` parameters, by name without the prefix.
    """

    layout: Layout = "NCHW"
    datatype: Datatype = "FP32"
    batching: Batching = "max_batch_size"
    height: int = 32
    width: int = 32
    open_size: bool = False
    trailing_ones: bool = False
    softmax: bool = False
    half_output: bool = False
    decoy_output: bool = False
    label_file: bool = True
    parameters: dict[str, str] = field(default_factory=dict, hash=False)

    def add_to(self, repository: Path, name: str, *, gain: float = 1.0) -> Path:
        """Put it into a repository; ``gain`` multiplies its logits, so that versions can be told apart."""
        if self.datatype == "STRING":
            folder = add_model(repository, name, None, self._config("python"))
            (folder / "1" / "model.py").write_text(_DECODING_MODEL)
        else:
            folder = add_model(repository, name, self.model(gain=gain), self._config("onnxruntime"))
        if self.label_file:
            (folder / "labels.txt").write_text("\n".join(LABELS) + "\n")
        return folder

    def model(self, *, gain: float = 1.0) -> onnx.ModelProto:
        """Its ONNX graph."""
        fixed: dict[str, list[str | int]] = {"none": [], "leading 1": [1], "reshape": [1]}
        batch = fixed.get(self.batching, ["batch"])
        size: list[str | int] = ["height", "width"] if self.open_size else [self.height, self.width]
        pixels = [3, *size] if self.layout == "NCHW" else [*size, 3]
        row = [CLASSES, 1, 1] if self.trailing_ones else [CLASSES]
        scores = ("scores", TensorProto.FLOAT16 if self.half_output else TensorProto.FLOAT, [*batch, *row])
        decoy = [("decoy", TensorProto.FLOAT, [*(batch or [1]), CLASSES])] if self.decoy_output else []
        return onnx_model(self._nodes(gain), [("image", _ELEMENTS[self.datatype], [*batch, *pixels])], [scores, *decoy])

    def _nodes(self, gain: float) -> list[onnx.NodeProto]:
        unbatched = self.batching == "none"
        steps: list[tuple[str, dict[str, Any]]] = [("Cast", {"to": TensorProto.FLOAT})]
        if unbatched:
            steps.append(("Unsqueeze", {"axes": [0]}))
        if self.layout == "NHWC":
            steps.append(("Transpose", {"perm": [0, 3, 1, 2]}))
        half = [self.height // 2, self.width // 2]
        steps += [("AveragePool", {"kernel_shape": half, "strides": half}), ("Flatten", {"axis": 1})]
        steps.append(("Mul", {"by": gain / DIVISOR}))
        if self.softmax:
            steps.append(("Softmax", {"axis": 1}))
        if self.trailing_ones:
            steps.append(("Unsqueeze", {"axes": [2, 3]}))
        if unbatched:
            steps.append(("Squeeze", {"axes": [0]}))
        steps.append(("Cast", {"to": TensorProto.FLOAT16 if self.half_output else TensorProto.FLOAT}))
        nodes = _chain(steps, source="image", target="scores")
        if self.decoy_output:
            flat = next(node.output[0] for node in nodes if node.op_type == "Flatten")
            nodes.append(helper.make_node("Neg", [flat], ["decoy"]))
        return nodes

    def _config(self, backend: str) -> str:
        lead = {"leading -1": [-1], "leading 1": [1]}.get(self.batching, [])
        row = [*lead, CLASSES, *([1, 1] if self.trailing_ones else [])]
        reshape = f"reshape {{ shape: {[1, *row]} }}" if self.batching == "reshape" else ""
        labels = 'label_filename: "labels.txt"' if self.label_file else ""
        scores_type = "TYPE_FP16" if self.half_output else "TYPE_FP32"
        outputs = [f'{{ name: "scores" data_type: {scores_type} dims: {row} {labels} {reshape} }}']
        if self.decoy_output:
            outputs.append(f'{{ name: "decoy" data_type: TYPE_FP32 dims: {self._decoy_dims(lead)} }}')
        parameters = {"scores": "probabilities" if self.softmax else "logits"} | self.parameters
        if self.decoy_output:
            parameters["output"] = "scores"
        if self.open_size:
            parameters["size"] = f"{self.height}x{self.width}"
        return f"""
            backend: "{backend}"
            max_batch_size: {8 if self.batching == "max_batch_size" else 0}
            input [ {self._input(lead)} ]
            output [ {", ".join(outputs)} ]
            instance_group [ {{ count: 1 }} ]
            {"".join(_parameter(name, value) for name, value in parameters.items())}
        """

    def _decoy_dims(self, lead: list[int]) -> list[int]:
        return [1, CLASSES] if self.batching in ("none", "reshape") else [*lead, CLASSES]

    def _input(self, lead: list[int]) -> str:
        if self.datatype == "STRING":
            return f'{{ name: "image" data_type: TYPE_STRING dims: {[*lead, 1]} }}'
        size = [-1, -1] if self.open_size else [self.height, self.width]
        dims = [3, *size] if self.layout == "NCHW" else [*size, 3]
        reshape = f"reshape {{ shape: {[1, *dims]} }}" if self.batching == "reshape" else ""
        # Triton takes a format only where the image is all there is.
        layout = "" if lead else f"format: FORMAT_{self.layout}"
        return f'{{ name: "image" data_type: TYPE_{self.datatype} {layout} dims: {[*lead, *dims]} {reshape} }}'


def _chain(steps: list[tuple[str, dict[str, Any]]], *, source: str, target: str) -> list[onnx.NodeProto]:
    """Nodes one after the other; what ONNX takes as a second input becomes a constant."""
    nodes: list[onnx.NodeProto] = []
    for index, (operator, attributes) in enumerate(steps):
        output = target if index == len(steps) - 1 else f"step{index}"
        constant = attributes.pop("by", None) or (operator.endswith("queeze") and attributes.pop("axes"))
        inputs = [source]
        if constant:
            kind = "value_float" if isinstance(constant, float) else "value_ints"
            nodes.append(helper.make_node("Constant", [], [f"constant{index}"], **{kind: constant}))
            inputs.append(f"constant{index}")
        nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        source = output
    return nodes


def _parameter(name: str, value: str) -> str:
    escaped = value.replace('"', '\\"')
    return f'parameters {{ key: "tidegate.{name}" value {{ string_value: "{escaped}" }} }}\n'


def quarters(colors: list[tuple[int, int, int]], size: tuple[int, int] = (70, 50)) -> bytes:
    """A PNG of ``size`` whose quarters have these colours: top left, top right, bottom left, bottom right."""
    width, height = size
    image = Image.new("RGB", size)
    corners = [(0, 0), (width // 2, 0), (0, height // 2), (width // 2, height // 2)]
    for corner, color in zip(corners, colors, strict=True):
        image.paste(color, (*corner, corner[0] + width // 2, corner[1] + height // 2))
    buffer = BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def expected_logits(image: bytes, *, height: int = 32, width: int = 32) -> NDArray[np.float64]:
    """What the probe must answer for an upright RGB image that is squashed to its size."""
    with Image.open(BytesIO(image)) as opened:
        pixels = np.asarray(opened.convert("RGB").resize((width, height), Image.Resampling.BILINEAR), np.float64)
    means = pixels.reshape(2, height // 2, 2, width // 2, 3).mean(axis=(1, 3))
    logits: NDArray[np.float64] = means.transpose(2, 0, 1).reshape(CLASSES) / DIVISOR
    return logits


# The same probe for encoded images; it runs in Triton's own Python process.
_DECODING_MODEL = """
import io

import numpy as np
import triton_python_backend_utils as pb_utils
from PIL import Image


class TritonPythonModel:
    def execute(self, requests):
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        images = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        scores = np.stack([self._scores(data) for data in images.ravel()]).astype(np.float32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("scores", scores.reshape(*images.shape[:-1], 12))])

    def _scores(self, data):
        pixels = Image.open(io.BytesIO(data)).convert("RGB").resize((32, 32), Image.Resampling.BILINEAR)
        means = np.asarray(pixels, np.float64).reshape(2, 16, 2, 16, 3).mean(axis=(1, 3))
        return means.transpose(2, 0, 1).reshape(12) / 32.0
"""
