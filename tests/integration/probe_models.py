"""Small ONNX models that tell on whoever runs them, and the repository folders that hold them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
from onnx import TensorProto, helper

# What the ONNX Runtime of every Triton in use can read.
OPSET = 17
IR_VERSION = 8

Value = tuple[str, int, Sequence[str | int]]
"""Name, element type and shape of an input or output."""


def onnx_model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[Value], outputs: Sequence[Value]) -> onnx.ModelProto:
    """A model out of operators; values are ``(name, TensorProto type, shape)``."""
    graph = helper.make_graph(
        nodes,
        "probe",
        [helper.make_tensor_value_info(*value) for value in inputs],
        [helper.make_tensor_value_info(*value) for value in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def add_model(repository: Path, name: str, model: onnx.ModelProto | None, config: str) -> Path:
    """Put a model into a repository, or one whose file is missing; returns its folder."""
    folder = repository / name
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text(config)
    if model is not None:
        onnx.save(model, folder / "1" / "model.onnx")
    return folder


def batch_witness() -> onnx.ModelProto:
    """``x: float32 [batch, 2]`` to ``doubled: 2 x`` and ``company: int64 [batch, 1]``, the rows of the same run."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["doubled"]),
        helper.make_node("Shape", ["x"], ["rows"], end=1),
        helper.make_node("Constant", [], ["one"], value_ints=[1]),
        helper.make_node("Concat", ["rows", "one"], ["column"], axis=0),
        helper.make_node("Expand", ["rows", "column"], ["company"]),
    ]
    return onnx_model(
        nodes,
        [("x", TensorProto.FLOAT, ["batch", 2])],
        [("doubled", TensorProto.FLOAT, ["batch", 2]), ("company", TensorProto.INT64, ["batch", 1])],
    )


def number_reader() -> onnx.ModelProto:
    """``text: string [batch, 1]`` to ``number: float32 [batch, 1]``; what is no number fails the run."""
    node = helper.make_node("Cast", ["text"], ["number"], to=TensorProto.FLOAT)
    return onnx_model(
        [node], [("text", TensorProto.STRING, ["batch", 1])], [("number", TensorProto.FLOAT, ["batch", 1])]
    )


def length_witness() -> onnx.ModelProto:
    """``x: int64 [batch, length]`` to ``total: int64 [batch, 1]``, the sum of each row."""
    nodes = [
        helper.make_node("Constant", [], ["axes"], value_ints=[1]),
        helper.make_node("ReduceSum", ["x", "axes"], ["total"], keepdims=1),
    ]
    return onnx_model(
        nodes, [("x", TensorProto.INT64, ["batch", "length"])], [("total", TensorProto.INT64, ["batch", 1])]
    )


def channel_means(element: int, *, batch: str | int = "batch", trailing_ones: bool = False) -> onnx.ModelProto:
    """``image [batch, 3, 4, 4]`` to ``means: float32 [batch, 3]``; ``[batch, 3, 1, 1]`` as a convolution leaves it."""
    nodes = [
        helper.make_node("Cast", ["image"], ["pixels"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["pixels"], ["means"], axes=[2, 3], keepdims=int(trailing_ones)),
    ]
    shape = [batch, 3, 1, 1] if trailing_ones else [batch, 3]
    return onnx_model(nodes, [("image", element, [batch, 3, 4, 4])], [("means", TensorProto.FLOAT, shape)])
