"""``docs/api.md`` says what the API says of itself."""

from __future__ import annotations

import json
import re

from api.app import create_app
from tests.docs.api_examples import EXAMPLES
from tests.docs.api_page import PAGE, api_page
from tidegate.settings import load_settings


def test_page_is_what_openapi_says() -> None:
    """The page in docs is the one that is made from the code; write it with ``python -m tests.docs.api_page``."""
    assert PAGE.read_text() == api_page()


def test_page_names_every_operation_and_document() -> None:
    """Nothing that OpenAPI tells of is left out, and every link on the page leads to a heading."""
    document = create_app(load_settings({})).openapi()
    page = api_page()
    operations = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert operations == set(re.findall(r"^`(\w+)`: ", page, re.MULTILINE))
    headings = {heading.lower() for heading in re.findall(r"^### (\w+)$", page, re.MULTILINE)}
    assert headings == {name.lower() for name in document["components"]["schemas"]}
    assert set(re.findall(r"\]\(#(\w+)\)", page)) <= headings


def test_examples_belong_to_operations() -> None:
    """No example outlives its operation, and every answer that is shown as JSON is."""
    document = create_app(load_settings({})).openapi()
    operations = {operation["operationId"] for path in document["paths"].values() for operation in path.values()}
    assert EXAMPLES.keys() <= operations
    for examples in EXAMPLES.values():
        for example in examples:
            if example.language == "json":
                json.loads(example.answer)
