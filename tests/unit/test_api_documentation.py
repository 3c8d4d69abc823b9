"""The OpenAPI document says what the API does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api.app import create_app
from api.errors import KINDS, PROBLEM_MEDIA_TYPE
from api.options import JobOptions, options_from_json
from api.schemas import Problem
from tidegate.settings import Settings


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    """The document of the application."""
    return create_app(Settings()).openapi()


def operations(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every operation there is."""
    for path in document["paths"].values():
        yield from path.values()


def references(node: Any) -> Iterator[str]:
    """Every ``$ref`` in a part of the document."""
    if isinstance(node, dict):
        for name, value in node.items():
            if name == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for item in node:
            yield from references(item)


def test_operations_have_names_that_methods_of_a_client_would_have(document: dict[str, Any]) -> None:
    """A verb and a noun each, and stable."""
    assert {operation["operationId"] for operation in operations(document)} == {
        "submit_job",
        "submit_jobs",
        "list_jobs",
        "get_jobs",
        "watch_job",
        "get_job",
        "cancel_job",
        "list_deliveries",
        "redeliver_webhook",
        "list_models",
        "get_model",
        "check_health",
        "check_readiness",
    }


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    """Also those that FastAPI does not know of."""
    schemas = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert set(references(document)) <= schemas


def test_every_refusal_is_a_problem_with_an_example(document: dict[str, Any]) -> None:
    """No operation tells of an error in another form, and each example is one that the API could give."""
    statuses = {error.code: kind.status for error, kind in KINDS.items()}
    for operation in operations(document):
        for status, response in operation["responses"].items():
            if status.startswith("2"):
                continue
            assert list(response["content"]) == [PROBLEM_MEDIA_TYPE]
            examples = response["content"][PROBLEM_MEDIA_TYPE]["examples"]
            assert examples
            for code, example in examples.items():
                problem = Problem.model_validate(example["value"])
                assert problem.code == code
                assert problem.status == int(status) == statuses[code]


def test_the_unavailable_say_when_to_come_back(document: dict[str, Any]) -> None:
    """Wherever 503 is documented, so is Retry-After."""
    answers = [op["responses"]["503"] for op in operations(document) if "503" in op["responses"]]
    assert answers
    assert all("Retry-After" in answer["headers"] for answer in answers)


def test_a_submission_is_documented_in_its_three_forms(document: dict[str, Any]) -> None:
    """Form, JSON and plain bytes, the last with its options in the query."""
    submit = document["paths"]["/v1/jobs"]["post"]
    assert list(submit["requestBody"]["content"]) == [
        "multipart/form-data",
        "application/json",
        "application/octet-stream",
        "image/*",
    ]
    options = set(JobOptions.model_fields)
    assert {parameter["name"] for parameter in submit["parameters"] if parameter["in"] == "query"} == options
    for form, images in (("multipart/form-data", {"image"}), ("application/json", {"image", "image_url"})):
        schema = submit["requestBody"]["content"][form]["schema"]
        assert set(schema["properties"]) == images | options
        assert schema["additionalProperties"] is False


def test_the_examples_of_a_submission_are_accepted(document: dict[str, Any]) -> None:
    """Whoever pastes one gets no refusal for its options."""
    content = document["paths"]["/v1/jobs"]["post"]["requestBody"]["content"]
    for example in content["application/json"]["examples"].values():
        options_from_json(
            {name: value for name, value in example["value"].items() if name not in ("image", "image_url")}
        )


def test_webhooks_are_documented_with_every_way_in_which_a_job_can_end(document: dict[str, Any]) -> None:
    """Each with the job as its data, and with the headers by which it is verified."""
    assert set(document["webhooks"]) == {"job.succeeded", "job.failed", "job.canceled", "job.expired"}
    for name, path in document["webhooks"].items():
        operation = path["post"]
        assert {parameter["name"] for parameter in operation["parameters"]} == {
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
        }
        properties = operation["requestBody"]["content"]["application/json"]["schema"]["properties"]
        assert properties["type"] == {"const": name}
        assert properties["data"] == {"$ref": "#/components/schemas/Job"}


def test_whatever_is_under_a_version_wants_a_key_and_tells_its_limits(document: dict[str, Any]) -> None:
    """And nothing else does; where no keys are set up, none is wanted."""
    schemes = document["components"]["securitySchemes"]
    for path, methods in document["paths"].items():
        for operation in methods.values():
            wanted = {name for choice in operation.get("security", ()) for name in choice}
            assert wanted == (set(schemes) if path.startswith("/v1/") else set())
            if path.startswith("/v1/"):
                assert {"401", "429"} <= set(operation["responses"])
                assert all("RateLimit" in response["headers"] for response in operation["responses"].values())


def test_every_form_of_a_body_has_an_example_where_it_is_text(document: dict[str, Any]) -> None:
    """Whoever reads the document sees how a request looks."""
    for operation in operations(document):
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            assert media_type in ("application/octet-stream", "image/*") or content["examples"]
