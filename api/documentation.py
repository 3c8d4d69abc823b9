"""What the OpenAPI document says beyond what FastAPI reads off the routes: the forms of a submission, and problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI

from api.errors import PROBLEM_MEDIA_TYPE, kind_of
from api.options import JobOptions
from api.prefer import MAX_WAIT_SECONDS
from api.schemas import FieldProblem, Problem
from tidegate.errors import InvalidField, TidegateError, UnavailableError

DESCRIPTION = """A queue in front of a GPU: hand in images, get a job at once, and its classes when it is done.

Every error is `application/problem+json` (RFC 9457), told apart by its `code`."""

TAGS = [
    {"name": "jobs", "description": "Images that are, or were, to be classified."},
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
        if issubclass(error, UnavailableError):
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
    )
    return problem.model_dump(exclude_none=True)


def _without_null(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an option as text may give it: left out, but never null."""
    branches = [branch for branch in schema.get("anyOf", []) if branch.get("type") != "null"]
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default", "title")}
    default = {"default": schema["default"]} if schema.get("default") is not None else {}
    return {**kept, **(branches[0] if branches else {}), **default}


_OPTIONS: dict[str, Any] = JobOptions.model_json_schema()["properties"]
#: In a query and in the parts of a form, metadata is JSON in a string.
_TEXT_OPTIONS = {
    **{name: _without_null(schema) for name, schema in _OPTIONS.items()},
    "metadata": {
        "type": "string",
        "contentMediaType": "application/json",
        "description": _OPTIONS["metadata"]["description"],
        "examples": ['{"order": "4711"}'],
    },
}


def _object(image: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["image"],
        "additionalProperties": False,
        "properties": {"image": image, **options},
    }


_FORM_IMAGE = {"type": "string", "format": "binary", "contentMediaType": "application/octet-stream"}
_JSON_IMAGE = {
    "type": "string",
    "minLength": 1,
    "description": "Base64, standard or URL-safe, padded or not; or a data URI.",
}
_PLAIN_IMAGE = {"schema": {"type": "string", "format": "binary"}}

_PLAIN_ONLY = "Only where the body is the plain image."

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
        *(
            {"name": name, "in": "query", "required": False, "schema": schema, "description": _PLAIN_ONLY}
            for name, schema in _TEXT_OPTIONS.items()
        ),
    ],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _object(_FORM_IMAGE, _TEXT_OPTIONS)},
            "application/json": {
                "schema": _object(_JSON_IMAGE, _OPTIONS),
                "examples": {
                    "base64": {"value": {"image": _PIXEL, "top_k": 3}},
                    "data_uri": {"value": {"image": f"data:image/png;base64,{_PIXEL}", "metadata": {"order": "4711"}}},
                },
            },
            "application/octet-stream": _PLAIN_IMAGE,
            "image/*": _PLAIN_IMAGE,
        },
    },
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
        return document
