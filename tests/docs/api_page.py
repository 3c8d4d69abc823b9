"""``docs/api.md``: the API's own OpenAPI document as a page, with an example of each call.

``python -m tests.docs.api_page`` writes it; a test holds it to what the API says, and another runs the examples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from api.app import create_app
from tests.docs.api_examples import EXAMPLES
from tidegate.settings import load_settings

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"
HEAD = """# The API

Made from the OpenAPI document, which every API serves at `/openapi.json`; do not edit. To look at it and to try calls,
open `/docs` or `/redoc`: these two pages load their scripts from a CDN, so they need the internet, and stay empty
without it. Nothing else does.

In the examples the API is at `http://127.0.0.1:8000`, as `tidegate up` starts it, and `$JOB` is the `id` of a job.
"""
PROBLEM = "application/problem+json"


def api_page() -> str:
    """The page as it should be."""
    document = create_app(load_settings({})).openapi()
    parts = [HEAD, *_operations(document), "## Documents\n", *_schemas(document["components"]["schemas"])]
    return "\n".join(parts)


def _operations(document: Mapping[str, Any]) -> Iterator[str]:
    for tag in document["tags"]:
        yield f"## {tag['name'].capitalize()}\n\n{tag['description']}\n"
        for path, methods in document["paths"].items():
            for method, operation in methods.items():
                if tag["name"] in operation["tags"]:
                    yield from _operation(f"{method.upper()} {path}", operation)


def _operation(title: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {title}\n\n`{operation['operationId']}`: {operation['description']}\n"
    for example in EXAMPLES.get(operation["operationId"], ()):
        yield f"```bash\n{example.command}\n```\n\n```{example.language}\n{example.answer}\n```\n"
    if parameters := operation.get("parameters"):
        yield _table(
            ("parameter", "in", "type", "what"),
            [(f"`{each['name']}`", each["in"], _type(each["schema"]), _what(each)) for each in parameters],
        )
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        yield f"Body `{media_type}`: {_body(content['schema'])}.\n"
        if media_type == "application/json":
            yield _fields(content["schema"]["properties"])
    answers = sorted(operation["responses"].items())
    yield _table(("answer", "what", "codes"), [(status, *_answer(answer)) for status, answer in answers])


def _body(schema: Mapping[str, Any]) -> str:
    if "properties" not in schema:
        return "the image itself; options go into the query" if schema.get("format") == "binary" else _type(schema)
    return ", ".join(f"`{name}`" for name in schema["properties"])


def _answer(answer: Mapping[str, Any]) -> tuple[str, str]:
    content = answer.get("content", {})
    codes = ", ".join(f"`{code}`" for code in content.get(PROBLEM, {}).get("examples", {}))
    kinds = [
        _type(kind["schema"]) for media_type, kind in content.items() if media_type != PROBLEM and "schema" in kind
    ]
    headers = [f"`{name}`" for name in answer.get("headers", {})]
    told = [answer["description"].rstrip("."), *kinds]
    return "; ".join(told) + (f" (with {', '.join(headers)})" if headers else ""), codes


def _schemas(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield f"### {name}\n\n{_one_line(schema.get('description', ''))}\n"
        if "properties" in schema:
            yield _fields(schema["properties"])
        elif "enum" in schema:
            yield f"One of {', '.join(f'`{value}`' for value in schema['enum'])}.\n"


def _fields(properties: Mapping[str, Any]) -> str:
    rows = [(f"`{field}`", _type(facts), _what(facts)) for field, facts in properties.items()]
    return _table(("field", "type", "what"), rows)


def _type(schema: Mapping[str, Any]) -> str:
    """A type in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    branches = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if branches:
        return " or ".join(dict.fromkeys(_type(branch) for branch in branches))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_type(schema['items'])}"
    return str(schema.get("format") or schema.get("type") or "anything") + _bounds(schema)


def _bounds(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is not None:
        return f", {0 if least is None else least} to {most}"
    return "" if least is None else f", {least} or more"


def _what(facts: Mapping[str, Any]) -> str:
    """What a field or parameter is, with its bounds."""
    schema = facts.get("schema", facts)
    description = facts.get("description") or schema.get("description", "")
    default = schema.get("default")
    told = [description] if description else []
    told += ["Required."] if facts.get("required") is True else []
    told += [f"Default: `{json.dumps(default)}`."] if default not in (None, {}, []) else []
    return _one_line(" ".join(told))


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _table(heads: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(api_page())
