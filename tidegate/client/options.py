"""What may be asked for beside the image."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class Options(TypedDict, total=False):
    """The options of a submission, as keyword arguments; each may be left out. ``docs/api.md`` has their bounds.

    Attributes:
        model: the model that answers; by default the only one there is, or the one that is configured.
        version: the version of the model that must answer; by default the newest.
        top_k: how many classes are named, best first.
        regions: boxes ``(left, top, right, bottom)`` in pixels of the upright image, each classified on its own.
        priority: which jobs of the model go first.
        expires_in: seconds after which the job ends unanswered; by default never.
        metadata: strings by name, given back with the job.
        webhook_url: where the job is sent when it has ended.
        webhook_events: the ends of which the webhook tells, such as ``job.failed``; by default all.
    """

    model: str
    version: str
    top_k: int
    regions: Sequence[Sequence[int]]
    priority: Literal["high", "normal", "low"]
    expires_in: int
    metadata: Mapping[str, str]
    webhook_url: str
    webhook_events: Sequence[str]


def form_fields(options: Options) -> dict[str, str]:
    """The options as parts of a form, where everything is text: words with commas, and what is no word as JSON."""
    return {name: _text(value) for name, value in options.items()}


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    if not isinstance(value, Sequence):
        return json.dumps(value)
    if all(isinstance(part, str) for part in value):
        return ",".join(value)
    return json.dumps([list(part) for part in value])
