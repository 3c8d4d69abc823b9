"""Reads a :class:`~worker.contract.model.ModelContract` from Triton's own answers, and from nothing else.

:func:`read_contract` is pure: it takes the configuration and metadata that :mod:`worker.triton` fetched,
and says in one sentence why a model is not a classifier that can be served. Whatever it does not
understand it refuses: a model served with the wrong shape, size or scaling answers, and answers wrongly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tidegate.errors import ModelContractError
from worker.contract.model import NO_LIMIT, Batching, Datatype, ModelContract, Scores
from worker.contract.parameters import ParameterError, own_parameters, read_choice, read_preprocessing, read_size
from worker.contract.preprocessing import Layout, Preprocessing

_INPUT_TYPES: Mapping[str, Datatype] = {
    "TYPE_UINT8": "UINT8",
    "TYPE_FP16": "FP16",
    "TYPE_BF16": "BF16",
    "TYPE_FP32": "FP32",
    "TYPE_STRING": "BYTES",
}
_TYPE = "TYPE_"
_OUTPUT_TYPES = ("TYPE_FP16", "TYPE_BF16", "TYPE_FP32", "TYPE_FP64")
_FORMATS: Mapping[str, Layout] = {"FORMAT_NHWC": "NHWC", "FORMAT_NCHW": "NCHW"}
_FP16_MAX = float(np.finfo(np.float16).max)
_IMAGE_RANK = 3
_CHANNELS = 3


def read_contract(config: Mapping[str, Any], metadata: Mapping[str, Any]) -> ModelContract:
    """Read a contract from Triton's answers, as ``tritonclient`` gives them with ``as_json=True``.

    Args:
        config: the model configuration, with or without its outer ``{"config": ...}``; 64-bit numbers may
            be strings, and fields at their default may be missing.
        metadata: the model metadata; only the versions are taken from it.

    Raises:
        ModelContractError: Tidegate cannot serve this model; the message names it and says why.
    """
    document = config.get("config", config)
    name = str(document.get("name") or metadata.get("name", ""))
    try:
        return _read(name, document, [str(version) for version in metadata.get("versions", ())])
    except _Breach as breach:
        raise ModelContractError(f"model {name} {breach}") from breach
    except ParameterError as error:
        raise ModelContractError(f"model {name} has a wrong parameter: {error}") from error


class _Breach(ValueError):
    """What a model does that no contract allows, as the end of a sentence that starts with its name."""


def _read(name: str, document: Mapping[str, Any], versions: list[str]) -> ModelContract:
    parameters = own_parameters(document.get("parameters", {}))
    _check_servable(document)
    tensor = _only_input(document)
    datatype = _input_type(tensor)
    dims = _dims(tensor)
    max_batch = int(document.get("max_batch_size", 0))
    batching, shape = _split_batch(dims, max_batch, decodes_itself=datatype == "BYTES")
    preprocessing = None
    if datatype == "BYTES":
        _refuse_pixel_parameters(parameters)
    else:
        preprocessing = _preprocessing(tensor, shape, datatype, parameters)
        shape = _image_shape(preprocessing)
    output = _choose_output(document, parameters)
    classes = _count_classes(output, batching)
    scores = read_choice(parameters, "scores", Scores.RAW)
    if scores is Scores.LOGITS and classes == 1:
        raise _Breach("has a single class, and the softmax of one logit says nothing: it is always 1")
    return ModelContract(
        name=name,
        versions=tuple(sorted(versions, key=_version_order)),
        input_name=str(tensor.get("name", "")),
        datatype=datatype,
        image_shape=shape,
        batching=batching,
        batch_limit={Batching.MODEL: max_batch, Batching.EXPLICIT: NO_LIMIT}.get(batching, 1),
        output_name=str(output.get("name", "")),
        output_datatype=str(output["data_type"]).removeprefix(_TYPE),
        classes=classes,
        scores=scores,
        preprocessing=preprocessing,
        label_file=output.get("label_filename") or None,
    )


def _check_servable(document: Mapping[str, Any]) -> None:
    if document.get("model_transaction_policy", {}).get("decoupled"):
        raise _Breach("is decoupled, so one request may have any number of answers")
    if "sequence_batching" in document:
        raise _Breach("batches sequences, so its answers depend on the requests before")


def _only_input(document: Mapping[str, Any]) -> Mapping[str, Any]:
    inputs = document.get("input", [])
    if len(inputs) != 1:
        names = ", ".join(str(tensor.get("name", "?")) for tensor in inputs) or "none"
        raise _Breach(f"has {len(inputs)} inputs ({names}), not one that takes an image")
    only: Mapping[str, Any] = inputs[0]
    return only


def _input_type(tensor: Mapping[str, Any]) -> Datatype:
    spelt = str(tensor.get("data_type", "no type"))
    if spelt not in _INPUT_TYPES:
        known = ", ".join(_INPUT_TYPES)
        raise _Breach(f"takes {spelt} as input {tensor.get('name')}, which is none of {known}")
    return _INPUT_TYPES[spelt]


def _dims(tensor: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape that a client sees; a ``reshape`` is between Triton and the model."""
    return tuple(int(size) for size in tensor.get("dims", ()))


def _split_batch(dims: tuple[int, ...], max_batch: int, *, decodes_itself: bool) -> tuple[Batching, tuple[int, ...]]:
    """Tell what of ``dims`` is the batch, and what one image."""
    image_ranks = (0, 1) if decodes_itself else (_IMAGE_RANK,)
    if max_batch > 0:
        batching, shape = Batching.MODEL, dims
    elif len(dims) == max(image_ranks) + 1 or (decodes_itself and dims == (-1,)):
        leads = {-1: Batching.EXPLICIT, 1: Batching.FIXED_ONE}
        if dims[0] not in leads:
            raise _Breach(f"takes exactly {dims[0]} images a call ({list(dims)}), which no queue can promise")
        batching, shape = leads[dims[0]], dims[1:]
    else:
        batching, shape = Batching.NONE, dims
    if len(shape) not in image_ranks or (decodes_itself and shape not in ((), (1,), (-1,))):
        expected = "one string" if decodes_itself else "an image"
        raise _Breach(f"has an input of shape {list(dims)}, which is not {expected}")
    return batching, (1,) * len(shape) if decodes_itself else shape


def _refuse_pixel_parameters(parameters: Mapping[str, str]) -> None:
    idle = sorted(set(parameters) - {"output", "scores"})
    if idle:
        raise ParameterError(f"tidegate.{idle[0]} means nothing where the model decodes images itself")


def _preprocessing(
    tensor: Mapping[str, Any], shape: tuple[int, ...], datatype: Datatype, parameters: Mapping[str, str]
) -> Preprocessing:
    layout = _layout(shape, _FORMATS.get(tensor.get("format", "")))
    height, width = _size(shape[1:] if layout == "NCHW" else shape[:2], parameters.get("size"))
    plan = read_preprocessing(parameters, height=height, width=width, layout=layout)
    if datatype == "UINT8" and not plan.scaling.is_identity:
        raise ParameterError("tidegate.scaling makes fractions, which a UINT8 input cannot take")
    if datatype == "FP16" and plan.scaling.peak > _FP16_MAX:
        raise ParameterError(f"tidegate.scaling makes values up to {plan.scaling.peak:g}, infinity in FP16")
    return plan


def _layout(shape: tuple[int, ...], declared: Layout | None) -> Layout:
    channels_first, channels_last = shape[0] == _CHANNELS, shape[-1] == _CHANNELS
    if declared:
        if not (channels_first if declared == "NCHW" else channels_last):
            raise _Breach(f"says FORMAT_{declared}, but has no {_CHANNELS} in that place of {list(shape)}")
        return declared
    if channels_first and channels_last:
        raise _Breach(f"has an input of {list(shape)}, NCHW or NHWC: its configuration must say the format")
    if not channels_first and not channels_last:
        raise _Breach(f"has an input of {list(shape)}, without a {_CHANNELS} for the colours at either end")
    return "NCHW" if channels_first else "NHWC"


def _size(declared: tuple[int, ...], parameter: str | None) -> tuple[int, int]:
    wanted = read_size(parameter) if parameter else declared
    if any(side < 1 for side in wanted):
        raise _Breach(f"takes images of any size {list(declared)}: tidegate.size must choose one")
    if any(fixed not in (-1, side) for fixed, side in zip(declared, wanted, strict=True)):
        raise ParameterError(f"tidegate.size is {parameter}, but the input is {declared[0]}x{declared[1]}")
    return wanted[0], wanted[1]


def _image_shape(plan: Preprocessing) -> tuple[int, ...]:
    if plan.layout == "NCHW":
        return (_CHANNELS, plan.height, plan.width)
    return (plan.height, plan.width, _CHANNELS)


def _choose_output(document: Mapping[str, Any], parameters: Mapping[str, str]) -> Mapping[str, Any]:
    outputs: Mapping[str, Mapping[str, Any]] = {
        str(tensor.get("name", "")): tensor for tensor in document.get("output", [])
    }
    chosen = parameters.get("output")
    names = ", ".join(outputs) or "none"
    if chosen is not None and chosen not in outputs:
        raise ParameterError(f"tidegate.output is {chosen}, but the outputs are {names}")
    if chosen is None and len(outputs) != 1:
        raise _Breach(f"has {len(outputs)} outputs ({names}): tidegate.output must choose one")
    output = outputs[chosen if chosen is not None else names]
    if output.get("data_type") not in _OUTPUT_TYPES:
        raise _Breach(f"gives {output.get('data_type')} as output {output.get('name')}, not {', '.join(_OUTPUT_TYPES)}")
    return output


def _count_classes(output: Mapping[str, Any], batching: Batching) -> int:
    dims = _dims(output)
    if batching is Batching.EXPLICIT and dims[:1] != (-1,):
        raise _Breach(f"takes any number of images, but its output is {list(dims)}, whatever their number")
    row = dims[1:] if batching is Batching.EXPLICIT else dims
    long = [size for size in row if size != 1]
    if len(long) > 1 or not row:
        raise _Breach(f"gives {list(dims)} as output {output.get('name')}, not one score for each class")
    classes = long[0] if long else 1
    if classes < 1:
        raise _Breach(f"does not fix how many classes its output {output.get('name')} has: {list(dims)}")
    return classes


def _version_order(version: str) -> tuple[int, str]:
    return (int(version) if version.isdecimal() else 0, version)
