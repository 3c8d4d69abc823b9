"""The model server, seen as a worker sees it; and the models, seen as the workers last saw them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tidegate.catalogue import ModelEntry, read_catalogue
from tidegate.doctor.finding import Finding, fault, fine, warning
from tidegate.errors import StoreUnavailable
from tidegate.settings import Settings
from tidegate.store import connect

#: For the start of Python and a few calls, each of which has a deadline.
PROBE_SECONDS = 30.0

_START_IT = "Start Triton, or set TIDEGATE_TRITON_URL to its gRPC address."


def look_at_models(settings: Settings) -> Iterator[Finding]:
    """The server first, then what the workers make of it."""
    yield from judge_server(settings.triton_url, _probe())
    yield _reported(settings)


def judge_server(address: str, answer: dict[str, Any]) -> Iterator[Finding]:
    """What ``worker.probe`` said of the model server."""
    if "models" not in answer:
        yield fault("triton", f"{address}: {answer['error']}", answer.get("advice", _START_IT))
        return
    models = answer["models"]
    if not models:
        yield fault("triton", f"{address} has no models", "Put one into its model repository: README.md tells how.")
        return
    yield fine("triton", f"{address} answers")
    for model in models:
        subject = f"model {model['name']}"
        if model["reason"]:
            yield fault(subject, model["reason"], "The other models are served all the same.")
        else:
            yield fine(subject, f"version {', '.join(model['versions'])}: {model['input']}, {model['classes']} classes")


def _probe() -> dict[str, Any]:
    # A process of its own: it is the worker's code that speaks to Triton, and only its extra brings what that needs.
    command = [sys.executable, "-m", "worker.probe"]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=PROBE_SECONDS, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        return {"error": f"no answer within {PROBE_SECONDS:g} s"}
    if ended.returncode:
        last = ended.stderr.strip().splitlines()[-1:] or [f"exit code {ended.returncode}"]
        return {"error": last[0], "advice": "pip install 'tidegate[worker]' brings what speaks to it."}
    answer: dict[str, Any] = json.loads(ended.stdout)
    return answer


def _reported(settings: Settings) -> Finding:
    try:
        with connect(settings, max_connections=1) as client:
            entries = list(read_catalogue(client, settings).values())
    except StoreUnavailable as error:
        return fault("workers", f"what they reported cannot be read: {error}", "See what is said of redis.")
    ready = [entry.name for entry in entries if entry.ready]
    if not entries:
        return fault("workers", "none has reported a model", "Start one: celery -A worker.app worker -E")
    if not ready:
        return fault("workers", "; ".join(map(_why_not, entries)), "See what is said of triton.")
    missing = [_why_not(entry) for entry in entries if not entry.ready]
    told = f"they serve {', '.join(ready)}"
    if missing:
        return warning("workers", "; ".join([told, *missing]), "See what is said of triton.")
    return fine("workers", told)


def _why_not(entry: ModelEntry) -> str:
    return f"{entry.name} is {entry.state}: {entry.reason}"
