"""The examples of ``docs/api.md``, by operation; ``tests/e2e/test_docs.py`` runs them, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One call, and its answer.

    Attributes:
        command: for a shell in the checkout; ``$JOB`` is the id of the last job that was submitted.
        answer: JSON, as much of it as is worth showing: what is there must be there in the real answer too.
    """

    command: str
    answer: str


EXAMPLES: Mapping[str, Sequence[Example]] = {
    "submit_job": (
        Example(
            """curl -sS -F image=@examples/images/coffee.jpg -F top_k=1 -F metadata='{"order": "4711"}' \\
  http://127.0.0.1:8000/v1/jobs""",
            """{"id": "01978c7e-...", "status": "queued", "model": "efficientnet_lite0", "metadata": {"order": "4711"},
 "urls": {"get": "/v1/jobs/01978c7e-...", "cancel": "/v1/jobs/01978c7e-..."}}""",
        ),
        Example(
            """curl -sS -H 'Content-Type: image/jpeg' -H 'Prefer: wait=10' --data-binary @examples/images/coffee.jpg \\
  'http://127.0.0.1:8000/v1/jobs?top_k=1'""",
            """{"id": "01978c7e-...", "status": "succeeded",
 "result": {"predictions": [{"class_id": 967, "class_name": "espresso", "logit": 9.87, "probability": 0.95}]}}""",
        ),
        Example(
            """curl -sS -H 'Content-Type: application/json' -d '{"image": "bm8gaW1hZ2U="}' \\
  http://127.0.0.1:8000/v1/jobs""",
            """{"type": "about:blank", "title": "Unsupported Media Type", "status": 415, "code": "unsupported_format",
 "detail": "The bytes are no image in an accepted format; ..."}""",
        ),
    ),
    "get_job": (
        Example(
            'curl -sS "http://127.0.0.1:8000/v1/jobs/$JOB?wait=30"',
            """{"id": "01978c7e-...", "status": "succeeded", "attempts": 1,
 "timings": {"queued_ms": 3.1, "preprocess_ms": 4.0, "infer_ms": 15.2, "total_ms": 24.9},
 "batch": {"id": "..."}}""",
        ),
    ),
    "cancel_job": (
        Example(
            'curl -sS -X DELETE "http://127.0.0.1:8000/v1/jobs/$JOB"',
            """{"type": "about:blank", "title": "Conflict", "status": 409, "code": "job_finished"}""",
        ),
    ),
    "list_models": (
        Example(
            "curl -sS http://127.0.0.1:8000/v1/models",
            """{"models": [{"name": "efficientnet_lite0", "state": "ready", "versions": ["1"], "classes": 1000}]}""",
        ),
    ),
    "get_model": (
        Example(
            "curl -sS http://127.0.0.1:8000/v1/models/efficientnet_lite0",
            """{"name": "efficientnet_lite0", "state": "ready", "versions": ["1"], "classes": 1000}""",
        ),
    ),
    "check_health": (Example("curl -sS http://127.0.0.1:8000/healthz", """{"status": "ok"}"""),),
    "check_readiness": (Example("curl -sS http://127.0.0.1:8000/readyz", """{"status": "ready"}"""),),
}  # fmt: skip
