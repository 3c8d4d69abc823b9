"""Contracts of models whose server has no configuration: metadata, and what a person declared."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.declarations import ModelDeclaration
from tidegate.errors import ModelContractError
from worker.contract import NO_LIMIT, SCALINGS, Batching, ModelContract, Scores, complete_contract

METADATA: dict[str, Any] = {
    "name": "probe",
    "inputs": [{"name": "image", "datatype": "FP32", "shape": ["-1", "3", "8", "8"]}],
    "outputs": [{"name": "scores", "datatype": "FP32", "shape": ["-1", "12"]}],
}


def declared(**fields: Any) -> ModelContract:
    """The contract of that model with a declaration of these fields."""
    return complete_contract(None, METADATA, ModelDeclaration.model_validate(fields))


def test_metadata_alone_makes_a_contract_with_the_documented_defaults() -> None:
    """Shapes tell the batch and the layout; scores are raw, and pixels are 0..255."""
    contract = complete_contract(None, METADATA)
    assert (contract.input_name, contract.datatype, contract.image_shape) == ("image", "FP32", (3, 8, 8))
    assert (contract.batching, contract.batch_limit) == (Batching.EXPLICIT, NO_LIMIT)
    assert (contract.output_name, contract.classes, contract.scores) == ("scores", 12, Scores.RAW)
    assert contract.preprocessing is not None
    assert contract.preprocessing.scaling == SCALINGS["none"]


def test_declaration_fills_what_is_missing() -> None:
    """Parameters are those of a configuration, without their prefix; a limit is a limit."""
    contract = declared(batch_limit=4, parameters={"scores": "logits", "scaling": "torchvision"})
    assert (contract.batch_limit, contract.scores) == (4, Scores.LOGITS)
    assert contract.preprocessing is not None
    assert contract.preprocessing.scaling == SCALINGS["torchvision"]


def test_declaration_never_raises_a_limit() -> None:
    """Triton says 8; a person may say less, and not more."""
    config = {
        "name": "probe",
        "max_batch_size": 8,
        "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [3, 8, 8]}],
        "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": [12]}],
    }
    limits = [
        complete_contract(config, METADATA, ModelDeclaration(batch_limit=limit)).batch_limit for limit in (2, 8, 99)
    ]
    assert limits == [2, 8, 8]


def test_strings_are_encoded_images() -> None:
    """The protocol calls them BYTES where Triton's configuration says TYPE_STRING."""
    inputs = [{"name": "image", "datatype": "BYTES", "shape": ["-1", "1"]}]
    contract = complete_contract(None, METADATA | {"inputs": inputs})
    assert (contract.datatype, contract.image_shape, contract.preprocessing) == ("BYTES", (1,), None)


def test_tensors_can_be_declared_where_metadata_has_none() -> None:
    """A server may know nothing of its models' shapes."""
    bare = {"name": "probe", "inputs": [], "outputs": []}
    declaration = ModelDeclaration.model_validate(
        {
            "input": {"name": "x", "datatype": "UINT8", "shape": [1, 8, 8, 3]},
            "output": {"name": "y", "datatype": "FP16", "shape": [1, 12]},
        }
    )
    contract = complete_contract(None, bare, declaration)
    assert (contract.input_name, contract.batching, contract.image_shape) == ("x", Batching.FIXED_ONE, (8, 8, 3))
    assert (contract.output_name, contract.output_datatype, contract.classes) == ("y", "FP16", 12)


def test_format_can_be_declared_where_the_shape_leaves_it_open() -> None:
    """A 3 at both ends says nothing."""
    inputs = [{"name": "image", "datatype": "FP32", "shape": ["3", "8", "3"]}]
    contract = complete_contract(
        None,
        METADATA | {"inputs": inputs, "outputs": [{"name": "scores", "datatype": "FP32", "shape": ["12"]}]},
        ModelDeclaration(format="NHWC"),
    )
    assert contract.layout == "NHWC"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"input": {"name": "x", "datatype": "FP32", "shape": [-1, 3, 8, 8]}}, "the server tells the input itself"),
        ({"output": {"name": "x", "datatype": "FP32", "shape": [-1, 12]}}, "the server tells the output itself"),
        ({"format": "NHWC"}, "says FORMAT_NHWC"),
        ({"parameters": {"scale": "unit"}}, "tidegate.scale is not a parameter of Tidegate; did you mean"),
        ({"parameters": {"scores": "softmax"}}, "tidegate.scores is 'softmax'"),
    ],
)
def test_declaration_that_does_not_fit_is_refused_by_name(fields: dict[str, Any], reason: str) -> None:
    """One sentence names the model and says what is wrong."""
    with pytest.raises(ModelContractError) as caught:
        declared(**fields)
    assert str(caught.value).startswith("model probe ")
    assert reason in str(caught.value)


def test_parameter_that_both_tell_must_agree() -> None:
    """Where the configuration says otherwise, nobody guesses which is meant."""
    config = {
        "name": "probe",
        "input": [{"name": "image", "data_type": "TYPE_FP32", "dims": [-1, 3, 8, 8]}],
        "output": [{"name": "scores", "data_type": "TYPE_FP32", "dims": [-1, 12]}],
        "parameters": {"tidegate.color": {"string_value": "BGR"}},
    }
    agreed = complete_contract(config, METADATA, ModelDeclaration(parameters={"color": "BGR"}))
    assert agreed.preprocessing is not None
    with pytest.raises(ModelContractError, match=r"tidegate\.color is 'BGR' on the server and 'RGB' there"):
        complete_contract(config, METADATA, ModelDeclaration(parameters={"color": "RGB"}))
