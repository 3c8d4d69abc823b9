"""The ``webhooks`` section of the OpenAPI document: what receivers get."""

from __future__ import annotations

from typing import Any

from tidegate.documents import Job
from tidegate.jobs import State

#: Source: Standard Webhooks 1.0.0.
_HEADERS = {
    "webhook-id": "The same on every attempt: what was taken before can be told by it.",
    "webhook-timestamp": "Unix time of this attempt, in seconds.",
    "webhook-signature": "`v1,` and HMAC-SHA256 in base64 over id, timestamp and body, joined by `.`; or several.",
}


def webhooks(schemas: dict[str, Any]) -> dict[str, Any]:
    """One webhook for each way in which a job can end; adds the schema that they need."""
    schemas.setdefault(Job.__name__, Job.model_json_schema(ref_template="#/components/schemas/{model}"))
    return {f"job.{state}": {"post": _operation(state)} for state in State if state.terminal}


def _operation(state: State) -> dict[str, Any]:
    name = f"job.{state}"
    return {
        "operationId": f"on_job_{state}",
        "tags": ["webhooks"],
        "summary": f"A job has {state}." if state is not State.CANCELED else "A job was canceled.",
        "parameters": [
            {"name": header, "in": "header", "required": True, "schema": {"type": "string"}, "description": description}
            for header, description in _HEADERS.items()
        ],
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "required": ["type", "timestamp", "data"],
                        "properties": {
                            "type": {"const": name},
                            "timestamp": {"type": "string", "format": "date-time"},
                            "data": {"$ref": f"#/components/schemas/{Job.__name__}"},
                        },
                    }
                }
            },
        },
        "responses": {
            "2XX": {"description": "Taken; it is not sent again."},
            "410": {"description": "This URL wants no more webhooks."},
            "default": {
                "description": "Not taken; it is tried again for a while, unless a 4xx says that this is in vain."
            },
        },
    }
