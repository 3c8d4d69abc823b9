"""Every route under requests made up from its own OpenAPI document, right ones and wrong ones; bounded."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import redis
from hypothesis import HealthCheck, Phase, given
from hypothesis import strategies as st

from api.app import create_app
from api.errors import PROBLEM_MEDIA_TYPE
from tests.integration.api_client import ApiServer, ready_model, report, run_job
from tests.integration.ledger_probe import new_job
from tidegate.ledger import Ledger
from tidegate.settings import load_settings
from tidegate.store import connect

#: At home it may be missing.
_load = importlib.import_module if os.environ.get("CI") == "true" else pytest.importorskip
schemathesis: Any = _load("schemathesis")
_checks: Any = _load("schemathesis.specs.openapi.checks")
CHECKS = [
    _checks.status_code_conformance,
    _checks.content_type_conformance,
    _checks.response_headers_conformance,
    _checks.response_schema_conformance,
]

EXAMPLES = 30
MODEL = "m"
#: A job that has ended, of which a route can be asked: names that are made up lead to nothing but 404.
JOB = new_job(model=MODEL)
KNOWN = {"job_id": JOB.id, "name": MODEL}
#: A route that waits may take its time; one that is asked for nonsense may not.
TIMEOUT_SECONDS = 20


def operations() -> list[tuple[str, str]]:
    """Every path and method of the document."""
    document = create_app(load_settings({})).openapi()
    return [(path, method.upper()) for path, methods in document["paths"].items() for method in methods]


@pytest.fixture(scope="module")
def server(redis_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """The API as it is deployed, with one model and one job that has ended."""
    settings = load_settings({}, redis_url=redis_server.url, key_prefix="schema:", log_level="WARNING")
    report(settings, ready_model(MODEL))
    with connect(settings) as client:
        ledger = Ledger(client, settings)
        ledger.run(ledger.commands.accept([JOB]))
        run_job(ledger, JOB.id)
    server = ApiServer(settings, tmp_path_factory.mktemp("api")).start()
    try:
        yield server
    finally:
        server.stop()
        with redis.Redis.from_url(redis_server.url) as client:
            client.delete(*client.keys("schema:*"))


@pytest.fixture(scope="module")
def schema(server: ApiServer) -> Any:
    """The document as a client reads it."""
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize(("path", "method"), operations())
def test_a_route_answers_whatever_its_document_allows_or_not(
    server: ApiServer, schema: Any, path: str, method: str
) -> None:
    """As documented, or with a small problem whose fault is the caller's; never with a crash, and in time."""

    @hypothesis.settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=schema[path][method].as_strategy(), known=st.booleans())
    def answers(case: Any, known: bool) -> None:  # noqa: FBT001 - hypothesis gives it by its name
        if known:
            case.path_parameters |= {name: KNOWN[name] for name in case.path_parameters if name in KNOWN}
        response = case.call(timeout=TIMEOUT_SECONDS, headers={"connection": "close"})
        assert response.status_code < 500 or response.status_code == 503
        if response.status_code >= 400:
            assert response.headers["content-type"] == [PROBLEM_MEDIA_TYPE]
            assert len(response.content) < 2048
        case.validate_response(response, checks=CHECKS)

    answers()
    assert "Traceback" not in Path(server.log).read_text()
