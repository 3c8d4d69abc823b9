"""Contracts for tests: a Triton configuration in few words, read as a real one is."""

from __future__ import annotations

from typing import Any

from worker.contract import ModelContract, read_contract


def contract(
    *,
    dims: list[int] | None = None,
    output: list[int] | None = None,
    max_batch: int = 8,
    datatype: str = "TYPE_FP32",
    **fields: Any,
) -> ModelContract:
    """The contract of a model named ``probe``; ``fields`` are more of its configuration."""
    scores = {"name": "scores", "data_type": "TYPE_FP32", "dims": output or [10], "label_filename": "labels.txt"}
    document = {
        "name": "probe",
        "max_batch_size": max_batch,
        "input": [{"name": "pixels", "data_type": datatype, "dims": dims or [3, 4, 4]}],
        "output": [scores],
    }
    return read_contract(document | fields, {"versions": ["1"]})
