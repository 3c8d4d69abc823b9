"""What the model that does nothing promises, read by the same code as any other model's promise."""

from __future__ import annotations

from benchmarks.peers.null_model import CLASSES
from worker.contract import ModelContract, read_contract

MODEL = "null"
#: The same as the bundled EfficientNet's.
MAX_BATCH = 32


def null_contract() -> ModelContract:
    """One uint8 pixel in, 16 logits out."""
    config = {
        "name": MODEL,
        "max_batch_size": MAX_BATCH,
        "input": [{"name": "image", "data_type": "TYPE_UINT8", "dims": ["1", "1", "3"]}],
        "output": [{"name": "logits", "data_type": "TYPE_FP32", "dims": [str(CLASSES)]}],
        "parameters": {"tidegate.scores": {"string_value": "logits"}},
    }
    return read_contract({"config": config}, {"name": MODEL, "versions": ["1"]})
