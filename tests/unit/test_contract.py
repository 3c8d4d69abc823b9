"""The model contract, read from configurations as Triton gives them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import ModelContractError
from worker.contract import (
    NO_LIMIT,
    Batching,
    Color,
    Fidelity,
    Interpolation,
    ModelContract,
    Pad,
    Scaling,
    Scores,
    ShorterSide,
    Squash,
    read_contract,
)

METADATA = {"name": "probe", "versions": ["10", "2"], "inputs": [], "outputs": []}


def config(
    *,
    dims: list[int] | None = None,
    output: list[int] | None = None,
    max_batch: int = 8,
    datatype: str = "TYPE_FP32",
    parameters: dict[str, str] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A configuration in the spelling of ``get_model_config(as_json=True)``: 64-bit numbers are strings."""
    document: dict[str, Any] = {
        "name": "probe",
        "input": [{"name": "pixels", "data_type": datatype, "dims": _strings(dims or [3, 224, 224])}],
        "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": _strings(output or [1000])}],
        "parameters": {name: {"string_value": value} for name, value in (parameters or {}).items()},
    }
    if max_batch:
        document["max_batch_size"] = max_batch
    return {"config": document | fields}


def _strings(dims: list[int]) -> list[str]:
    return [str(size) for size in dims]


def read(**choices: Any) -> ModelContract:
    """The contract of a configuration made by :func:`config`."""
    return read_contract(config(**choices), METADATA)


def test_contract_reads_everything_of_an_ordinary_model() -> None:
    """Names, versions, sizes, batches and scores come from Triton's answers alone."""
    contract = read(
        dims=[224, 224, 3],
        datatype="TYPE_UINT8",
        max_batch=32,
        parameters={"tidegate.scores": "logits", "tidegate.resize": "shorter:256"},
        output=[1000],
    )
    assert contract.name == "probe"
    assert contract.versions == ("2", "10")
    assert (contract.input_name, contract.output_name) == ("pixels", "scores")
    assert (contract.datatype, contract.layout, contract.image_shape) == ("UINT8", "NHWC", (224, 224, 3))
    assert (contract.batching, contract.batch_limit) == (Batching.MODEL, 32)
    assert (contract.classes, contract.scores, contract.labels) == (1000, Scores.LOGITS, None)
    assert contract.describe_input() == "UINT8 [224, 224, 3] NHWC"


@pytest.mark.parametrize(
    ("dims", "max_batch", "batching", "limit", "shapes"),
    [
        ([3, 224, 224], 8, Batching.MODEL, 8, {1: (1, 3, 224, 224), 3: (3, 3, 224, 224)}),
        ([224, 224, 3], 8, Batching.MODEL, 8, {1: (1, 224, 224, 3), 3: (3, 224, 224, 3)}),
        ([-1, 3, 224, 224], 0, Batching.EXPLICIT, NO_LIMIT, {1: (1, 3, 224, 224), 3: (3, 3, 224, 224)}),
        ([-1, 299, 331, 3], 0, Batching.EXPLICIT, NO_LIMIT, {1: (1, 299, 331, 3), 3: (3, 299, 331, 3)}),
        ([1, 3, 96, 96], 0, Batching.FIXED_ONE, 1, {1: (1, 3, 96, 96)}),
        ([1, 32, 40, 3], 0, Batching.FIXED_ONE, 1, {1: (1, 32, 40, 3)}),
        ([3, 224, 224], 0, Batching.NONE, 1, {1: (3, 224, 224)}),
        ([640, 480, 3], 0, Batching.NONE, 1, {1: (640, 480, 3)}),
    ],
)
def test_contract_shapes_calls_as_the_model_takes_its_batches(
    dims: list[int], max_batch: int, batching: Batching, limit: int, shapes: dict[int, tuple[int, ...]]
) -> None:
    """Each way to take a batch gives its own tensor shape and its own limit."""
    output = [-1, 1000] if batching is Batching.EXPLICIT else [1000]
    contract = read(dims=dims, max_batch=max_batch, output=output)
    assert (contract.batching, contract.batch_limit) == (batching, limit)
    for count, shape in shapes.items():
        assert contract.input_shape(count) == shape
        assert contract.as_input(contract.empty_batch(count)).shape == shape


def test_contract_ignores_a_reshape() -> None:
    """What Triton reshapes between itself and the model never reaches a client."""
    document = config(dims=[3, 224, 224], max_batch=0, output=[1000])
    document["config"]["input"][0]["reshape"] = {"shape": ["1", "3", "224", "224"]}
    document["config"]["output"][0]["reshape"] = {"shape": ["1", "1000"]}
    contract = read_contract(document, METADATA)
    assert contract.input_shape(1) == (3, 224, 224)
    assert contract.classes == 1000


@pytest.mark.parametrize(
    ("spelt", "datatype", "itemsize"),
    [("TYPE_UINT8", "UINT8", 1), ("TYPE_FP16", "FP16", 2), ("TYPE_BF16", "BF16", 2), ("TYPE_FP32", "FP32", 4)],
)
def test_contract_makes_batches_of_the_models_own_type(spelt: str, datatype: str, itemsize: int) -> None:
    """The batch array has the type that goes on the wire, so nothing is cast later."""
    contract = read(datatype=spelt)
    assert contract.datatype == datatype
    assert contract.empty_batch(2).dtype.itemsize == itemsize
    assert contract.empty_batch(2).shape == (2, 3, 224, 224)


@pytest.mark.parametrize(
    ("dims", "max_batch", "batching", "shape"),
    [
        ([1], 8, Batching.MODEL, (2, 1)),
        ([-1], 8, Batching.MODEL, (2, 1)),
        ([-1, 1], 0, Batching.EXPLICIT, (2, 1)),
        ([-1], 0, Batching.EXPLICIT, (2,)),
        ([1, 1], 0, Batching.FIXED_ONE, (1, 1)),
        ([1], 0, Batching.NONE, (1,)),
    ],
)
def test_contract_of_a_model_that_decodes_itself_takes_encoded_bytes(
    dims: list[int], max_batch: int, batching: Batching, shape: tuple[int, ...]
) -> None:
    """A string input wants the file, one element an image, and has no pixels to prepare."""
    output = [-1, 10] if batching is Batching.EXPLICIT else [10]
    contract = read(dims=dims, max_batch=max_batch, datatype="TYPE_STRING", output=output)
    assert contract.datatype == "BYTES"
    assert contract.batching is batching
    assert (contract.preprocessing, contract.layout) == (None, None)
    count = min(2, contract.batch_limit)
    rows = contract.empty_batch(count)
    for index in range(count):
        rows[index, ...] = b"image"
    assert contract.as_input(rows).shape == shape
    assert all(value == b"image" for value in rows.ravel())


@pytest.mark.parametrize(
    ("dims", "layout"),
    [([3, 224, 224], "NCHW"), ([224, 224, 3], "NHWC"), ([3, 3, 8], "NCHW"), ([3, 8, 3], "NHWC")],
)
def test_contract_believes_the_declared_format(dims: list[int], layout: str) -> None:
    """Where Triton's ``format`` is given it decides, also where the 3 could stand at either end."""
    document = config(dims=dims)
    document["config"]["input"][0]["format"] = f"FORMAT_{layout}"
    assert read_contract(document, METADATA).layout == layout


@pytest.mark.parametrize(
    ("dims", "size", "expected"),
    [
        ([-1, -1, 3], "192x256", (192, 256, 3)),
        ([3, -1, -1], "224", (3, 224, 224)),
        ([3, 64, -1], "64x80", (3, 64, 80)),
        ([3, 224, 224], "224", (3, 224, 224)),
    ],
)
def test_contract_takes_an_open_size_from_its_parameter(dims: list[int], size: str, expected: tuple[int, ...]) -> None:
    """A model of any size is served at the one that its configuration chooses."""
    assert read(dims=dims, parameters={"tidegate.size": size}).image_shape == expected


@pytest.mark.parametrize(
    ("dims", "max_batch", "output", "classes"),
    [
        ([3, 8, 8], 8, [1000], 1000),
        ([3, 8, 8], 8, [1000, 1, 1], 1000),
        ([3, 8, 8], 8, [1, 1000], 1000),
        ([3, 8, 8], 8, [1], 1),
        ([-1, 3, 8, 8], 0, [-1, 7], 7),
        ([-1, 3, 8, 8], 0, [-1, 7, 1, 1], 7),
        ([1, 3, 8, 8], 0, [1, 7], 7),
        ([1, 3, 8, 8], 0, [7], 7),
        ([3, 8, 8], 0, [7], 7),
    ],
)
def test_contract_counts_classes_in_any_shape_of_one_vector(
    dims: list[int], max_batch: int, output: list[int], classes: int
) -> None:
    """Dimensions of one say nothing; what is left is the number of classes."""
    assert read(dims=dims, max_batch=max_batch, output=output).classes == classes


def test_contract_chooses_one_of_several_outputs_by_parameter() -> None:
    """Features or boxes beside the scores do no harm once the scores are named."""
    document = config(parameters={"tidegate.output": "logits"})
    document["config"]["output"] = [
        {"name": "features", "data_type": "TYPE_FP32", "dims": ["1280"]},
        {"name": "logits", "data_type": "TYPE_FP16", "dims": ["10"], "label_filename": "labels.txt"},
    ]
    contract = read_contract(document, METADATA)
    assert (contract.output_name, contract.classes, contract.label_file) == ("logits", 10, "labels.txt")


@pytest.mark.parametrize("datatype", ["TYPE_FP16", "TYPE_BF16", "TYPE_FP32", "TYPE_FP64"])
def test_contract_takes_scores_of_any_float_type(datatype: str) -> None:
    """Half precision is widened later, so it is no reason to refuse a model."""
    document = config()
    document["config"]["output"][0]["data_type"] = datatype
    assert read_contract(document, METADATA).classes == 1000


@pytest.mark.parametrize(
    ("parameters", "framing"),
    [
        ({}, Squash(1.0)),
        ({"resize": "squash", "crop": "0.875"}, Squash(0.875)),
        ({"resize": "shorter:256"}, ShorterSide(256, 192, 224)),
        ({"resize": "shorter:256", "crop": "200"}, ShorterSide(256, 200, 200)),
        ({"resize": "shorter:256", "crop": "0.875"}, ShorterSide(256, 224, 224)),
        ({"resize": "pad"}, Pad()),
        ({"resize": "PAD"}, Pad()),
    ],
)
def test_contract_reads_how_an_image_is_framed(parameters: dict[str, str], framing: object) -> None:
    """Resize and crop together say which part of an image is seen."""
    prefixed = {f"tidegate.{name}": value for name, value in parameters.items()}
    plan = read(dims=[3, 192, 224], parameters=prefixed).preprocessing
    assert plan is not None
    assert plan.framing == framing


def test_contract_reads_the_rest_of_the_plan() -> None:
    """Filter, channel order and fidelity are words of a closed set, in any case."""
    plan = read(
        parameters={
            "tidegate.interpolation": "bicubic",
            "tidegate.color": "BGR",
            "tidegate.fidelity": "Fast",
            "tidegate.scaling": "vgg",
        }
    ).preprocessing
    assert plan is not None
    assert (plan.interpolation, plan.color, plan.fidelity) == (Interpolation.BICUBIC, Color.BGR, Fidelity.FAST)


@pytest.mark.parametrize(
    ("text", "black", "white"),
    [
        ("none", (0, 0, 0), (255, 255, 255)),
        ("unit", (0, 0, 0), (1, 1, 1)),
        ("inception", (-1, -1, -1), (1, 1, 1)),
        ("vgg", (-123, -117, -104), (132, 138, 151)),
        ("torchvision", (-2.117904, -2.035714, -1.804444), (2.248908, 2.428571, 2.64)),
        ('{"mean": [127, 127, 127], "std": 128}', (-127 / 128,) * 3, (1, 1, 1)),
        ('{"mean": [1, 2, 3], "std": [2, 4, 8]}', (-0.5, -0.5, -0.375), (127, 63.25, 31.5)),
    ],
)
def test_contract_scales_black_and_white_as_the_preset_says(
    text: str, black: tuple[float, ...], white: tuple[float, ...]
) -> None:
    """Each preset is what its origin computes: Triton's image client, torchvision, or the given numbers."""
    plan = read(parameters={"tidegate.scaling": text}).preprocessing
    assert plan is not None
    np.testing.assert_allclose(_scaled(plan.scaling, 0), black, atol=1e-6)
    np.testing.assert_allclose(_scaled(plan.scaling, 255), white, atol=1e-6)


def _scaled(scaling: Scaling, value: int) -> list[float]:
    return [(value - mean) / divisor for mean, divisor in zip(scaling.mean, scaling.divisor, strict=True)]


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"datatype": "TYPE_INT64"}, "takes TYPE_INT64 as input pixels, which is none of TYPE_UINT8"),
        ({"input": []}, "has 0 inputs (none), not one"),
        ({"input": [{"name": "a"}, {"name": "b"}]}, "has 2 inputs (a, b), not one"),
        ({"output": []}, "has 0 outputs (none): tidegate.output must choose one"),
        ({"dims": [1, 224, 224]}, "without a 3 for the colours at either end"),
        ({"dims": [3, 224, 3]}, "NCHW or NHWC: its configuration must say the format"),
        ({"dims": [224, 224]}, "has an input of shape [224, 224], which is not an image"),
        ({"dims": [1, 3, 224, 224]}, "has an input of shape [1, 3, 224, 224], which is not an image"),
        ({"dims": [8, 3, 224, 224], "max_batch": 0}, "takes exactly 8 images a call"),
        ({"dims": [-1, 8, 3, 224, 224], "max_batch": 0}, "which is not an image"),
        ({"dims": [3, -1, -1]}, "takes images of any size [-1, -1]: tidegate.size must choose one"),
        ({"dims": [4], "datatype": "TYPE_STRING"}, "which is not one string"),
        ({"dims": [2, 2], "datatype": "TYPE_STRING", "max_batch": 0}, "takes exactly 2 images a call"),
        ({"dims": [-1, 3, 8, 8], "max_batch": 0, "output": [10]}, "its output is [10], whatever their number"),
        ({"output": [7, 7]}, "gives [7, 7] as output scores, not one score for each class"),
        ({"output": [-1]}, "does not fix how many classes its output scores has"),
        ({"model_transaction_policy": {"decoupled": True}}, "is decoupled"),
        ({"sequence_batching": {}}, "batches sequences"),
        ({"output": [1], "parameters": {"tidegate.scores": "logits"}}, "has a single class"),
    ],
)
def test_contract_refuses_what_it_cannot_serve_and_says_why(choices: dict[str, Any], reason: str) -> None:
    """A model that breaks the contract is named, with the reason, in one sentence."""
    if choices.get("input") is not None or choices.get("output") == []:
        document = config()
        document["config"] |= choices
    else:
        document = config(**choices)
    with pytest.raises(ModelContractError) as caught:
        read_contract(document, METADATA)
    assert str(caught.value).startswith("model probe ")
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        (
            {"tidegate.scalling": "unit"},
            "tidegate.scalling is not a parameter of Tidegate; did you mean tidegate.scaling?",
        ),
        ({"Tidegate.scaling": "unit"}, "Tidegate.scaling is not a parameter of Tidegate"),
        ({"tidegate.scaling": " "}, "tidegate.scaling is empty"),
        ({"tidegate.scaling": "imagenet"}, "tidegate.scaling is 'imagenet', which is neither none, unit, inception"),
        ({"tidegate.scaling": '{"mean": 0}'}, "which is neither"),
        ({"tidegate.scaling": '{"mean": 0, "std": 1, "more": 2}'}, "which is neither"),
        ({"tidegate.scaling": '{"mean": [0, 0], "std": 1}'}, "which is neither"),
        ({"tidegate.scaling": '{"mean": "0", "std": 1}'}, "which is neither"),
        ({"tidegate.scaling": '{"mean": NaN, "std": 1}'}, "which is neither"),
        ({"tidegate.scaling": "[1, 2]"}, "which is neither"),
        ({"tidegate.scaling": f'{{"mean": 1{"0" * 400}, "std": 1}}'}, "which is neither"),
        ({"tidegate.scaling": '{"mean": 0, "std": [1, 0, 1]}'}, "a std of zero"),
        ({"tidegate.resize": "shorter"}, "none of squash, shorter:<pixels>, pad"),
        ({"tidegate.resize": "shorter:0"}, "none of squash, shorter:<pixels>, pad"),
        ({"tidegate.resize": "shorter:200"}, "leaves less than the 224x224 that is cut out"),
        ({"tidegate.resize": "shorter:256", "tidegate.crop": "300"}, "leaves less than the 300x300"),
        ({"tidegate.resize": "shorter:256", "tidegate.crop": "-1"}, "must be above 0 and up to 1"),
        ({"tidegate.resize": "pad", "tidegate.crop": "0.9"}, "contradicts tidegate.resize=pad"),
        ({"tidegate.crop": "224"}, "with tidegate.resize=squash it must be above 0 and up to 1"),
        ({"tidegate.crop": "most"}, "must be above 0 and up to 1"),
        ({"tidegate.crop": "nan"}, "must be above 0 and up to 1"),
        ({"tidegate.interpolation": "cubic"}, "'cubic', which is none of nearest, box, bilinear"),
        ({"tidegate.color": "rgba"}, "'rgba', which is none of rgb, bgr"),
        ({"tidegate.scores": "softmax"}, "'softmax', which is none of logits, probabilities, raw"),
        ({"tidegate.size": "224x"}, "neither a side nor <height>x<width>"),
        ({"tidegate.size": "0"}, "neither a side nor <height>x<width>"),
        ({"tidegate.size": "256"}, "tidegate.size is 256, but the input is 224x224"),
        ({"tidegate.output": "logits"}, "tidegate.output is logits, but the outputs are scores"),
    ],
)
def test_contract_refuses_parameters_that_mean_nothing(parameters: dict[str, str], reason: str) -> None:
    """A typing mistake in a parameter never becomes a default."""
    with pytest.raises(ModelContractError) as caught:
        read(parameters=parameters)
    assert str(caught.value).startswith("model probe has a wrong parameter: ")
    assert reason in str(caught.value)


def test_contract_leaves_parameters_of_others_alone() -> None:
    """Triton's backends have parameters of their own, with names that are none of our business."""
    assert read(parameters={"execution_accelerators": "x", "scaling": "y"}).classes == 1000


@pytest.mark.parametrize(
    ("datatype", "scaling", "reason"),
    [
        ("TYPE_UINT8", "torchvision", "makes fractions, which a UINT8 input cannot take"),
        ("TYPE_FP16", '{"mean": 0, "std": 0.001}', "makes values up to 255000, infinity in FP16"),
    ],
)
def test_contract_refuses_scaling_that_the_type_cannot_hold(datatype: str, scaling: str, reason: str) -> None:
    """Values that would be cut off or become infinite are found before the first image."""
    with pytest.raises(ModelContractError, match=reason):
        read(datatype=datatype, parameters={"tidegate.scaling": scaling})


def test_contract_refuses_pixel_parameters_where_the_model_decodes() -> None:
    """A resize that nobody would carry out is not silently dropped."""
    with pytest.raises(ModelContractError, match=r"tidegate\.resize means nothing"):
        read(dims=[1], datatype="TYPE_STRING", parameters={"tidegate.resize": "pad"})


def test_contract_refuses_a_format_that_its_shape_contradicts() -> None:
    """NCHW without a 3 in front is a mistake in the configuration, not a layout."""
    document = config(dims=[224, 224, 3])
    document["config"]["input"][0]["format"] = "FORMAT_NCHW"
    with pytest.raises(ModelContractError, match="says FORMAT_NCHW, but has no 3 in that place"):
        read_contract(document, METADATA)


def test_contract_refuses_scores_that_are_no_floats() -> None:
    """Class ids or strings as output are no scores."""
    document = config()
    document["config"]["output"][0]["data_type"] = "TYPE_INT64"
    with pytest.raises(ModelContractError, match="gives TYPE_INT64 as output scores"):
        read_contract(document, METADATA)


def test_contract_takes_as_many_labels_as_classes_and_no_other_number() -> None:
    """A labels file that lost a line would name every class after it wrongly."""
    contract = read(output=[3])
    assert contract.with_labels(["a", "b", "c"]).labels == ("a", "b", "c")
    with pytest.raises(ModelContractError, match="model probe has 3 classes, but 2 labels"):
        contract.with_labels(["a", "b"])


def test_contract_fingerprint_changes_with_anything_that_matters() -> None:
    """Caches notice a new size, type, scaling or version, and are not disturbed by labels."""
    base = read()
    others = [
        read(dims=[3, 256, 256]),
        read(datatype="TYPE_FP16"),
        read(max_batch=4),
        read(parameters={"tidegate.scaling": "unit"}),
        read_contract(config(), METADATA | {"versions": ["11"]}),
    ]
    assert len({base.fingerprint, *(other.fingerprint for other in others)}) == 1 + len(others)
    assert base.fingerprint == read().fingerprint == base.with_labels(["x"] * 1000).fingerprint
    assert len(base.fingerprint) == 16


def test_contract_as_input_shares_memory_with_the_rows() -> None:
    """Shaping a call copies no pixels."""
    contract = read()
    rows = contract.empty_batch(3)
    assert np.shares_memory(contract.as_input(rows[1:]), rows)


@pytest.mark.parametrize(("max_batch", "count"), [(8, 0), (8, 9), (0, 2)])
def test_contract_refuses_calls_beyond_its_limit(max_batch: int, count: int) -> None:
    """More images than the model takes is a mistake of ours, told before it is sent."""
    with pytest.raises(ValueError, match=f"probe takes 1 to {max_batch or 1} images a call, not {count}"):
        read(max_batch=max_batch).input_shape(count)


DIMS = st.lists(st.sampled_from([-1, 0, 1, 2, 3, 8]), max_size=5)


@given(
    dims=DIMS,
    output=DIMS,
    max_batch=st.integers(0, 3),
    datatype=st.sampled_from(["TYPE_UINT8", "TYPE_FP32", "TYPE_STRING"]),
    size=st.sampled_from([{}, {"tidegate.size": "8"}]),
)
def test_contract_is_usable_or_refused_whatever_the_shapes(
    dims: list[int], output: list[int], max_batch: int, datatype: str, size: dict[str, str]
) -> None:
    """No odd shape slips through to fail at the first job: a contract that is read can make its tensor."""
    document = config(max_batch=max_batch, datatype=datatype, parameters=size)
    document["config"]["input"][0]["dims"] = _strings(dims)
    document["config"]["output"][0]["dims"] = _strings(output)
    try:
        contract = read_contract(document, METADATA)
    except ModelContractError:
        return
    tensor = contract.as_input(contract.empty_batch(1))
    assert tensor.size >= 1
    assert len(tensor.shape) == len(dims) + (max_batch > 0)
    assert contract.classes >= 1
