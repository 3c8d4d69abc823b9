"""The examples of ``docs/api.md``, by operation; ``tests/e2e/test_docs.py`` runs them, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One call, and its answer.

    Attributes:
        command: for a shell in the checkout; ``$JOB`` is the id of the last job that was submitted.
        answer: as much of it as is worth showing: what is there must be there in the real answer too.
        language: ``json``; or ``text``, whose lines must all be there, in their order.
    """

    command: str
    answer: str
    language: str = "json"


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
        Example(
            """for try in 1 2; do
  curl -sS -H 'Idempotency-Key: "order-4711"' -F image=@examples/images/cat.png http://127.0.0.1:8000/v1/jobs \\
    -o /dev/null -w '%header{location} replayed: %header{idempotent-replayed}\\n'
done""",
            """/v1/jobs/01978c7e-... replayed:
/v1/jobs/01978c7e-... replayed: true""",
            language="text",
        ),
    ),
    "list_jobs": (
        Example(
            "curl -sS 'http://127.0.0.1:8000/v1/jobs?status=succeeded&limit=1'",
            """{"jobs": [{"id": "01978c7e-...", "status": "succeeded"}], "next": "..."}""",
        ),
    ),
    "submit_jobs": (
        Example(
            """curl -sS -F image=@examples/images/coffee.jpg -F 'image=no image;filename=none.jpg' -F top_k=1 \\
  http://127.0.0.1:8000/v1/jobs:batch""",
            """{"jobs": [
  {"job": {"id": "01978c7e-...", "status": "queued", "model": "efficientnet_lite0"}, "problem": null},
  {"job": null, "problem": {"status": 415, "code": "unsupported_format", "detail": "The bytes are no image ..."}}]}""",
        ),
    ),
    "get_jobs": (
        Example(
            """curl -sS -H 'Content-Type: application/json' http://127.0.0.1:8000/v1/jobs:get \\
  -d "{\\"ids\\": [\\"$JOB\\", \\"01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e\\"]}\"""",
            """{"jobs": [{"id": "01978c7e-...", "status": "succeeded"}],
 "missing": ["01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e"]}""",
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
    "watch_job": (
        Example(
            'curl -sS -N "http://127.0.0.1:8000/v1/jobs/$JOB/events"',
            """retry: 2000

id: succeeded
event: ended
data: {"id":"01978c7e-...","status":"succeeded",...}""",
            language="text",
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
