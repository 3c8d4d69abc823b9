"""Triton's ONNX Runtime backend, as a Python-based backend for the embedded server.

Triton loads this file once for every instance of every model whose configuration says
``backend: "onnxruntime"`` or ``platform: "onnxruntime_onnx"``. It takes the same ``config.pbtxt`` and ``model.onnx``
as the C++ backend of NVIDIA's images. It runs in Triton's own Python process, where nothing but numpy,
onnxruntime and Triton's ``triton_python_backend_utils`` can be imported.

What it does not do: complete a configuration from the model (inputs and outputs must be listed), BF16, and strings
that are not UTF-8.
"""
# ruff: noqa: INP001 - Triton loads it by its path; there is no package

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
import triton_python_backend_utils as pb_utils

Array = npt.NDArray[Any]

# BF16 is missing: numpy has no such type, and Triton's Python backend hands over numpy arrays.
_ONNX_TYPES = {
    "TYPE_BOOL": "tensor(bool)",
    "TYPE_UINT8": "tensor(uint8)",
    "TYPE_UINT16": "tensor(uint16)",
    "TYPE_UINT32": "tensor(uint32)",
    "TYPE_UINT64": "tensor(uint64)",
    "TYPE_INT8": "tensor(int8)",
    "TYPE_INT16": "tensor(int16)",
    "TYPE_INT32": "tensor(int32)",
    "TYPE_INT64": "tensor(int64)",
    "TYPE_FP16": "tensor(float16)",
    "TYPE_FP32": "tensor(float)",
    "TYPE_FP64": "tensor(double)",
    "TYPE_STRING": "tensor(string)",
}


@dataclass(frozen=True)
class Request:
    """One inference request, as far as this backend looks at it.

    Attributes:
        inputs: the tensors by name, with a batch axis in front where the model batches.
        wanted: the names of the outputs that are asked for.
    """

    inputs: dict[str, Array]
    wanted: frozenset[str]

    @property
    def rows(self) -> int:
        """Its share of a merged batch."""
        return len(next(iter(self.inputs.values())))

    @property
    def signature(self) -> tuple[tuple[str, str, tuple[int, ...]], ...]:
        """Requests with the same one can be merged: same inputs, types and shapes but for the batch axis."""
        return tuple((name, array.dtype.str, array.shape[1:]) for name, array in sorted(self.inputs.items()))


Answer = dict[str, Array] | Exception
"""The outputs of one request by name, or why there are none."""


class TritonPythonModel:
    """One instance of one model. Triton calls :meth:`initialize` once and then :meth:`execute`."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the model's file.

        Raises:
            TritonModelException: the file is missing or broken, or it and the configuration contradict each other.
        """
        config = json.loads(args["model_config"])
        self._batches = config["max_batch_size"] > 0
        self._output_dims = {output["name"]: output["dims"] for output in config["output"]}
        file = _model_file(args, config)
        if not file.is_file():
            raise pb_utils.TritonModelException(f"the model's file {file} does not exist")
        try:
            self._session = ort.InferenceSession(file, _session_options(config), _providers(args))
        except Exception as error:
            raise pb_utils.TritonModelException(f"ONNX Runtime cannot load {file}: {error}") from error
        problems = [
            *_contradictions("input", config["input"], self._session.get_inputs()),
            *_contradictions("output", config["output"], self._session.get_outputs()),
        ]
        problems += _fixed_batch_axes(config["max_batch_size"], self._session.get_inputs())
        if problems:
            raise pb_utils.TritonModelException("; ".join(problems))

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Answer all requests, those that can be merged by one call to ONNX Runtime.

        Returns:
            One response a request, in the same order; a failed request has an error and leaves the others alone.
        """
        asked = [_read(request) for request in requests]
        groups: dict[object, list[int]] = {}
        for index, request in enumerate(asked):
            groups.setdefault(request.signature if self._batches else index, []).append(index)
        answers: dict[int, Answer] = {}
        for members in groups.values():
            answers.update(zip(members, self._answer([asked[index] for index in members]), strict=True))
        return [_response(answers[index], request.wanted) for index, request in enumerate(asked)]

    def _answer(self, group: list[Request]) -> list[Answer]:
        """Answer requests of one signature together or, where that fails, each alone to find the culprit."""
        try:
            return list(self._run(group))
        except Exception as error:  # noqa: BLE001 - whatever it is, it must not take Triton's process with it
            if len(group) == 1:
                return [error]
            return [self._answer([request])[0] for request in group]

    def _run(self, group: list[Request]) -> Iterable[dict[str, Array]]:
        """One call to ONNX Runtime, its outputs cut into what belongs to each request."""
        names = list(self._output_dims)
        outputs = dict(zip(names, self._session.run(names, _merged(group)), strict=True))
        if not self._batches:
            return [{name: _reshaped(array, self._output_dims[name]) for name, array in outputs.items()}]
        rows = [request.rows for request in group]
        for name, array in outputs.items():
            if len(array) != sum(rows):
                raise ValueError(f"output {name!r} has {len(array)} rows for {sum(rows)} in the batch")
            outputs[name] = _reshaped(array, [len(array), *self._output_dims[name]])
        cuts = np.cumsum(rows)[:-1]
        parts = {name: np.split(array, cuts) for name, array in outputs.items()}
        return [{name: parts[name][index] for name in names} for index in range(len(group))]


def _model_file(args: dict[str, str], config: dict[str, Any]) -> Path:
    name = config.get("default_model_filename") or "model.onnx"
    return Path(args["model_repository"], args["model_version"], name)


def _session_options(config: dict[str, Any]) -> ort.SessionOptions:
    """Share the cores between the model's instances, so that they do not fight over them."""
    options = ort.SessionOptions()
    instances = sum(group["count"] for group in config["instance_group"])
    options.intra_op_num_threads = max(1, len(os.sched_getaffinity(0)) // max(1, instances))
    options.inter_op_num_threads = 1
    # The embedded server shares its cores with the whole stack: an idle thread must sleep.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def _providers(args: dict[str, str]) -> list[Any]:
    """CUDA for an instance that Triton placed on a GPU, where this ONNX Runtime has it; the CPU otherwise."""
    cuda = "CUDAExecutionProvider"
    if args["model_instance_kind"] == "GPU" and cuda in ort.get_available_providers():
        return [(cuda, {"device_id": args["model_instance_device_id"]}), "CPUExecutionProvider"]
    return ["CPUExecutionProvider"]


def _contradictions(kind: str, configured: list[dict[str, Any]], actual: Sequence[Any]) -> Iterable[str]:
    """Where the configuration and the model's file do not agree, a sentence each."""
    if not configured:
        yield f"the configuration must list every {kind}"
    types = {node.name: node.type for node in actual}
    for tensor in configured:
        name, data_type = tensor["name"], tensor["data_type"]
        if name not in types:
            yield f"the model has no {kind} {name!r}, it has {sorted(types)}"
        elif data_type not in _ONNX_TYPES:
            yield f"{kind} {name!r} is {data_type}, which the embedded ONNX Runtime backend cannot handle"
        elif _ONNX_TYPES[data_type] != types[name]:
            yield f"{kind} {name!r} is configured as {data_type}, but the model has {types[name]}"


def _fixed_batch_axes(max_batch_size: int, inputs: Sequence[Any]) -> Iterable[str]:
    """Inputs that cannot take batches of every size that the configuration promises, a sentence each."""
    if max_batch_size == 0:
        return
    for node in inputs:
        first = node.shape[0] if node.shape else 0
        # A free axis is a name, or None; a fixed one of 1 keeps the promise of batches of at most 1.
        if isinstance(first, int) and not first == max_batch_size == 1:
            yield (
                f"the configuration has max_batch_size {max_batch_size}, but the first axis of input {node.name!r} "
                f"{node.shape} is fixed: set max_batch_size to 0, or export the model with a free axis"
            )


def _read(request: Any) -> Request:
    inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
    return Request(inputs, frozenset(request.requested_output_names()))


def _merged(group: list[Request]) -> dict[str, Array]:
    if len(group) == 1:
        return {name: _as_text(array) for name, array in group[0].inputs.items()}
    names = group[0].inputs
    return {name: _as_text(np.concatenate([request.inputs[name] for request in group])) for name in names}


def _as_text(array: Array) -> Array:
    """Strings as ONNX Runtime takes them; of the bytes that Triton gives it would make their Python spelling."""
    if array.dtype != np.object_:
        return array
    return np.array([item.decode() for item in array.flat], np.object_).reshape(array.shape)


def _reshaped(array: Array, dims: list[int]) -> Array:
    """The shape that the configuration promises, where it is a fixed one and the model's own differs."""
    return array if -1 in dims else array.reshape(dims)


def _response(answer: Answer, wanted: frozenset[str]) -> Any:
    if isinstance(answer, Exception):
        return pb_utils.InferenceResponse(error=pb_utils.TritonError(f"ONNX Runtime: {answer}"))
    return pb_utils.InferenceResponse(
        [pb_utils.Tensor(name, np.ascontiguousarray(array)) for name, array in answer.items() if name in wanted]
    )
