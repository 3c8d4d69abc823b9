"""A GPU that only takes its time: sleeps as long as a batch would take, and answers with a pixel's value.

The class of an image is the red value of its centre, so that an answer tells whose image was looked at. Triton's
statistics tell how many batches and images it ran.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

CLASSES = 256
LOGIT = 8.0


class TritonPythonModel:
    """The name that Triton looks for."""

    def initialize(self, args: dict[str, str]) -> None:
        """Read the times from the model's configuration."""
        parameters = json.loads(args["model_config"])["parameters"]
        self._base_seconds = float(parameters["base_ms"]["string_value"]) / 1000
        self._image_seconds = float(parameters["per_image_ms"]["string_value"]) / 1000

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        """Run each request as a batch of its own: nothing is merged."""
        return [self._run(request) for request in requests]

    def _run(self, request: Any) -> Any:
        images = pb_utils.get_input_tensor_by_name(request, "image").as_numpy()
        time.sleep(self._base_seconds + self._image_seconds * len(images))
        scores = np.zeros((len(images), CLASSES), np.float32)
        middle = images.shape[1] // 2
        scores[np.arange(len(images)), images[:, middle, middle, 0]] = LOGIT
        return pb_utils.InferenceResponse([pb_utils.Tensor("logits", scores)])
