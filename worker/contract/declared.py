"""Contracts of models whose server tells less than Triton does: what a person declared fills the gaps.

A declaration is put where Triton's own configuration would have said the same, so that one reader judges both.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from tidegate.declarations import ModelDeclaration, TensorDeclaration
from tidegate.errors import ModelContractError
from worker.contract.model import ModelContract
from worker.contract.parameters import PREFIX
from worker.contract.reader import read_contract

Document = Mapping[str, Any]


def complete_contract(
    config: Document | None, metadata: Document, declared: ModelDeclaration | None = None
) -> ModelContract:
    """Read a contract from what the server tells and what was declared.

    Args:
        config: the model configuration, as for :func:`read_contract`; None from a server that has none.
        metadata: the model metadata, as ``tritonclient`` gives it with ``as_json=True``.
        declared: what ``TIDEGATE_MODELS`` says of the model, if anything.

    Raises:
        ModelContractError: Tidegate cannot serve this model, or the declaration contradicts the server.
    """
    document = dict(config.get("config", config)) if config is not None else _from_metadata(metadata)
    if declared is None:
        return read_contract(document, metadata)
    name = str(document.get("name") or metadata.get("name", ""))
    try:
        _fill_in(document, declared)
    except _Contradiction as contradiction:
        raise ModelContractError(f"model {name} contradicts TIDEGATE_MODELS: {contradiction}") from contradiction
    contract = read_contract(document, metadata)
    limit = declared.batch_limit or contract.batch_limit
    return dataclasses.replace(contract, batch_limit=min(limit, contract.batch_limit))


class _Contradiction(ValueError):
    """Where the server and the declaration differ."""


def _from_metadata(metadata: Document) -> dict[str, Any]:
    """The configuration that the metadata amounts to: shapes there include the batch, so Triton adds none."""
    return {
        "name": metadata.get("name", ""),
        "input": [_tensor(found) for found in metadata.get("inputs", ())],
        "output": [_tensor(found) for found in metadata.get("outputs", ())],
    }


def _tensor(found: Document) -> dict[str, Any]:
    datatype = str(found.get("datatype", ""))
    return {
        "name": found.get("name", ""),
        "data_type": "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}",
        "dims": list(found.get("shape", ())),
    }


def _fill_in(document: dict[str, Any], declared: ModelDeclaration) -> None:
    for kind, tensor in (("input", declared.input), ("output", declared.output)):
        if tensor is not None:
            document[kind] = [_declared_tensor(kind, tensor, told=document.get(kind, ()))]
    if declared.format is not None:
        document["input"] = [_with_format(tensor, declared.format) for tensor in document["input"]]
    parameters = dict(document.get("parameters", {}))
    for short, text in declared.parameters.items():
        name = PREFIX + short
        told = parameters.setdefault(name, {"string_value": text}).get("string_value")
        if told != text:
            raise _Contradiction(f"{name} is {told!r} on the server and {text!r} there")
    document["parameters"] = parameters


def _declared_tensor(kind: str, tensor: TensorDeclaration, *, told: Any) -> dict[str, Any]:
    if told:
        raise _Contradiction(f"the server tells the {kind} itself, so it must not be declared")
    return _tensor(tensor.model_dump())


def _with_format(tensor: Document, layout: str) -> dict[str, Any]:
    told = tensor.get("format", "FORMAT_NONE")
    if told not in ("FORMAT_NONE", f"FORMAT_{layout}"):
        raise _Contradiction(f"the input is {told} on the server and {layout} there")
    return {**tensor, "format": f"FORMAT_{layout}"}
