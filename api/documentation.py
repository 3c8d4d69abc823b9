"""What the OpenAPI document says beyond what FastAPI reads off the routes: the forms of a submission, and problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from api.errors import PROBLEM_MEDIA_TYPE, kind_of
from api.idempotency import MAX_KEY_CHARACTERS
from api.lookups import Lookup, WaitQuery
from api.options import JobOptions
from api.prefer import MAX_WAIT_SECONDS
from api.schemas import FieldProblem, Problem
from api.webhook_documentation import webhooks
from tidegate.errors import InvalidField, RateLimited, TidegateError, UnavailableError
from tidegate.outbound.rules import MAX_URL_CHARACTERS

DESCRIPTION = """A queue in front of a GPU: hand in images, get a job at once, and its classes when it is done.

Every error is `application/problem+json` (RFC 9457), told apart by its `code`."""

TAGS = [
    {"name": "jobs", "description": "Images that are, or were, to be classified."},
    {"name": "webhooks", "description": "What became of telling the ends of jobs."},
    {"name": "models", "description": "What they can be classified with."},
    {"name": "health", "description": "For load balancers."},
]

#: One transparent pixel, so that the examples are images.
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def problems(*errors: type[TidegateError]) -> dict[int | str, dict[str, Any]]:
    """The documented refusals of a route, by status, each with an example."""
    responses: dict[int | str, dict[str, Any]] = {}
    for error in errors:
        kind = kind_of(error)
        response = responses.setdefault(kind.status, _problem_response(kind.title))
        response["content"][PROBLEM_MEDIA_TYPE]["examples"][error.code] = {"value": _example(error)}
        if issubclass(error, UnavailableError | RateLimited):
            response["headers"] = {"Retry-After": _header("Seconds after which it is worth a try.")}
    return responses


def _problem_response(title: str) -> dict[str, Any]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {"description": title, "content": {PROBLEM_MEDIA_TYPE: {"schema": schema, "examples": {}}}}


def _header(description: str, kind: str = "integer") -> dict[str, Any]:
    return {"description": description, "schema": {"type": kind}}


#: What goes with a job that has not ended.
POLL_HEADERS = {"Retry-After": _header("Seconds after which to ask again; absent once the job has ended.")}
#: What goes with the answer to a submission.
SUBMISSION_HEADERS = {
    "Location": _header("Where the job is.", "string"),
    "Preference-Applied": _header("Those of the `Prefer` header that were honoured.", "string"),
    "Vary": _header("`Prefer`.", "string"),
    "Idempotent-Replayed": _header("`true` where the job is that of an earlier request under the same key.", "string"),
}


def _example(error: type[TidegateError]) -> dict[str, Any]:
    kind = kind_of(error)
    detail = (error.__doc__ or "").partition("\n")[0]
    field = FieldProblem(detail="Input should be less than or equal to 86400", pointer="#/expires_in")
    problem = Problem(
        type=kind.type,
        title=kind.title,
        status=kind.status,
        detail=detail,
        code=error.code,
        errors=[field] if error is InvalidField else None,
        violated_policies=["requests"] if error is RateLimited else None,
    )
    return problem.model_dump(exclude_none=True, by_alias=True)


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an option as text may give it: left out, but never null."""
    branches = [branch for branch in schema.get("anyOf", []) if branch.get("type") != "null"]
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "title")}
    default = {"default": schema["default"]} if schema.get("default") is not None else {}
    return {**kept, **(branches[0] if branches else {}), **default}


_OPTIONS: dict[str, Any] = JobOptions.model_json_schema()["properties"]
#: In a query and in the parts of a form, metadata and regions are JSON in a string, and a list has commas.
_TEXT_OPTIONS = {
    **{name: _without_null(schema) for name, schema in _OPTIONS.items()},
    "metadata": {
        "type": "string",
        "contentMediaType": "application/json",
        "description": _OPTIONS["metadata"]["description"],
        "examples": ['{"order": "4711"}'],
    },
    "regions": {
        "type": "string",
        "contentMediaType": "application/json",
        "description": _OPTIONS["regions"]["description"],
        "examples": ["[[40, 20, 264, 244], [300, 0, 524, 224]]"],
    },
    "webhook_events": {
        "type": "string",
        "description": f"{_OPTIONS['webhook_events']['description']} Separated by commas.",
        "examples": ["job.succeeded,job.failed"],
    },
}


_FORM_IMAGE = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
_FORM_BODY: dict[str, Any] = {
    "type": "object",
    "required": ["image"],
    "additionalProperties": False,
    "properties": {"image": _FORM_IMAGE, **_TEXT_OPTIONS},
}
_JSON_IMAGE = {
    "type": "string",
    "minLength": 1,
    "description": "Base64, standard or URL-safe, padded or not; or a data URI.",
}
_IMAGE_URL = {
    "type": "string",
    "format": "uri",
    "minLength": 1,
    "maxLength": MAX_URL_CHARACTERS,
    "description": "Where the image is, for it to be fetched before the job runs. In place of `image`.",
}
_JSON_BODY = {
    "type": "object",
    "oneOf": [{"required": ["image"]}, {"required": ["image_url"]}],
    "additionalProperties": False,
    "properties": {"image": _JSON_IMAGE, "image_url": _IMAGE_URL, **_OPTIONS},
}
_PLAIN_IMAGE = {"schema": {"type": "string", "format": "binary"}}

_PLAIN_ONLY = "Only where the body is the plain image."

_KEY_HEADER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "maxLength": MAX_KEY_CHARACTERS + 2},
    "description": "Made up by the client, once for each submission: within a day, the same submission under the same "
    "key gives the same job, and another one is refused.",
    "example": '"8e03978e-40d5-43e8-bc93-6894a57f9324"',
}
_CACHE_HEADER = {
    "name": "Cache-Control",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "`no-cache`: the image is classified even where an equal job's answer is at hand.",
    "example": "no-cache",
}
_WAIT_HEADER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": f"`respond-async`, `wait=N` with N up to {MAX_WAIT_SECONDS} seconds, or both (RFC 7240).",
    "example": "respond-async, wait=10",
}

#: What FastAPI cannot read off ``submit_job``, which takes its body apart itself.
SUBMISSION: dict[str, Any] = {
    "parameters": [
        _WAIT_HEADER,
        _KEY_HEADER,
        _CACHE_HEADER,
        *(
            {"name": name, "in": "query", "required": False, "schema": schema, "description": _PLAIN_ONLY}
            for name, schema in _TEXT_OPTIONS.items()
        ),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": _FORM_BODY,
                "examples": {
                    "options": {"value": {"image": "(the file)", "top_k": 3, "metadata": '{"order": "4711"}'}}
                },
            },
            "application/json": {
                "schema": _JSON_BODY,
                "examples": {
                    "base64": {"value": {"image": _PIXEL, "top_k": 3}},
                    "data_uri": {"value": {"image": f"data:image/png;base64,{_PIXEL}", "metadata": {"order": "4711"}}},
                    "url": {
                        "value": {"image_url": "https://example.com/cat.jpg", "webhook_url": "https://example.com/"}
                    },
                },
            },
            "application/octet-stream": _PLAIN_IMAGE,
            "image/*": _PLAIN_IMAGE,
        },
    },
}

_BATCH_BODY = {
    **_FORM_BODY,
    "properties": {**_FORM_BODY["properties"], "image": {"type": "array", "items": _FORM_IMAGE, "minItems": 1}},
}
#: What FastAPI cannot read off ``submit_jobs``.
BATCH_SUBMISSION: dict[str, Any] = {
    "parameters": [_KEY_HEADER, _CACHE_HEADER],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": _BATCH_BODY,
                "examples": {"two": {"value": {"image": ["(a file)", "(another)"], "top_k": 3}}},
            }
        },
    },
}
#: What FastAPI cannot read off ``get_job``.
ONE_JOB: dict[str, Any] = {
    "parameters": [
        {"name": "job_id", "in": "path", "required": True, "schema": {"type": "string", "title": "Job Id"}},
        {
            "name": "wait",
            "in": "query",
            "required": False,
            "schema": WaitQuery.model_json_schema()["properties"]["wait"],
            "description": WaitQuery.model_fields["wait"].description,
        },
    ]
}
#: What FastAPI cannot read off ``get_jobs``.
LOOKUP: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": Lookup.model_json_schema(),
                "examples": {"one": {"value": {"ids": ["01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e"]}}},
            }
        },
    }
}
#: What FastAPI cannot read off ``watch_job``.
EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Events `queued`, `running` and `ended`, whose data is the job.",
        "content": {
            "text/event-stream": {
                # Of one event, as OpenAPI 3.2 has it; 3.1 has no word for a stream.
                "itemSchema": {
                    "type": "object",
                    "properties": {
                        "id": {"type": "string"},
                        "event": {"enum": ["queued", "running", "ended"]},
                        "data": {
                            "type": "string",
                            "contentMediaType": "application/json",
                            "contentSchema": {"$ref": "#/components/schemas/Job"},
                        },
                    },
                },
                "example": 'id: queued-0-3\nevent: queued\ndata: {"status": "queued", "queue_position": 3}\n\n',
            }
        },
    },
    204: {"description": "The job has ended, and the client has seen it."},
}
LAST_EVENT_ID = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The id of the last event that the client has seen.",
    "example": "queued-0-3",
}


_VALIDATION_ERROR = "HTTPValidationError"


class DocumentedAPI(FastAPI):
    """FastAPI, with a document that tells of our problems instead of FastAPI's own errors."""

    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        document = super().openapi()
        schemas: dict[str, Any] = document["components"]["schemas"]
        for path in document["paths"].values():
            for operation in path.values():
                # FastAPI tells of its own form of a 422, which never leaves this application.
                if _VALIDATION_ERROR in str(operation["responses"].get("422")):
                    del operation["responses"]["422"]
        for name in (_VALIDATION_ERROR, "ValidationError"):
            schemas.pop(name, None)
        for model in (Problem, FieldProblem):
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            schema.pop("$defs", None)
            schemas[model.__name__] = schema
        _secure(document)
        document["webhooks"] = webhooks(schemas)
        return document


def _secure(document: dict[str, Any]) -> None:
    """Tell of the keys that all under a version wants, where there are keys, and of their limits."""
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer", "description": "An API key."},
        "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    }
    limits = {
        "RateLimit": _header("What the key may still use, where it is limited.", "string"),
        "RateLimit-Policy": _header("Its limits.", "string"),
    }
    for path, operations in document["paths"].items():
        if not path.startswith("/v1/"):
            continue
        for operation in operations.values():
            # Nothing is wanted where no keys are set up.
            operation["security"] = [{"bearer": []}, {"header": []}, {}]
            for response in operation["responses"].values():
                response.setdefault("headers", {}).update(limits)
