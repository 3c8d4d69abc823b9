"""``python -m worker.probe``: what a worker would find at the model server, as JSON on stdout.

``tidegate doctor`` runs it. It prints ``{"models": [...]}``, or ``{"error": "..."}`` where the server does not answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from tidegate.errors import InferenceError, ModelContractError
from tidegate.settings import load_settings
from worker.discovery import ModelRepository
from worker.triton import RepositoryModel, Triton


def probe(repository: ModelRepository) -> dict[str, Any]:
    """Look once; no model is run."""
    try:
        rows = sorted(repository.repository(), key=lambda row: row.name)
        return {
            "models": [_model(repository, name, list(its)) for name, its in groupby(rows, key=lambda row: row.name)]
        }
    except InferenceError as error:
        return {"error": str(error)}


def _model(repository: ModelRepository, name: str, rows: Iterable[RepositoryModel]) -> dict[str, Any]:
    ready = [row.version for row in rows if row.ready]
    told: dict[str, Any] = {"name": name, "versions": ready, "input": "", "classes": 0, "reason": ""}
    if not ready:
        return {**told, "reason": next((row.reason for row in rows if row.reason), "") or "It is not loaded."}
    try:
        contract = repository.contract(name)
    except (ModelContractError, InferenceError) as error:
        return {**told, "reason": str(error)}
    return {**told, "input": contract.describe_input(), "classes": contract.classes}


if __name__ == "__main__":
    print(json.dumps(probe(Triton(load_settings()))))  # noqa: T201 - what it is for
