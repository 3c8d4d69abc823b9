"""The contract between Tidegate and a model: what is read from Triton about it, and what that decides.

``model`` holds the contract, ``preprocessing`` the plan for its images, ``reader`` and ``parameters`` read both
out of Triton's model configuration, and ``declared`` stands in for what another server does not tell. Nothing here
makes a call or touches a file.
"""

from worker.contract.declared import complete_contract
from worker.contract.model import DTYPES, NO_LIMIT, Batching, Datatype, ModelContract, Scores
from worker.contract.preprocessing import (
    SCALINGS,
    Color,
    Fidelity,
    Framing,
    Interpolation,
    Layout,
    Pad,
    Preprocessing,
    Scaling,
    ShorterSide,
    Squash,
)
from worker.contract.reader import read_contract

__all__ = [
    "DTYPES",
    "NO_LIMIT",
    "SCALINGS",
    "Batching",
    "Color",
    "Datatype",
    "Fidelity",
    "Framing",
    "Interpolation",
    "Layout",
    "ModelContract",
    "Pad",
    "Preprocessing",
    "Scaling",
    "Scores",
    "ShorterSide",
    "Squash",
    "complete_contract",
    "read_contract",
]
