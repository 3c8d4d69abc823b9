"""Submissions that are repeated, and equal ones: one job for the first kind, one answer for the second."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis

from api import waiters
from tests.integration.api_client import (
    PNG,
    PNG_BASE64,
    eventually,
    ids_in_queue,
    ready_model,
    report,
    run_job,
    services_of,
    serving,
)
from tests.integration.ledger_probe import RESULT, LedgerProbe, failure
from tidegate.errors import ModelFailed
from tidegate.keys import new_key
from tidegate.ledger import Ledger
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "repeated"
KEY = {"idempotency-key": '"8e03978e"'}


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API with one model."""
    report(settings, ready_model(MODEL))
    async with serving(settings) as client:
        yield client


@pytest.fixture
async def caching(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    """The same, with the result cache on; nobody finds by looking again what it was not told."""
    monkeypatch.setattr(waiters, "REREAD_SECONDS", 3600)
    report(settings, ready_model(MODEL))
    async with serving(settings.model_copy(update={"result_cache_seconds": 60})) as client:
        yield client


async def test_a_repeated_submission_is_the_same_job(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """In whichever form it comes, quoted or bare; while it waits and after its end; and the answer says so."""
    first = await api.post("/v1/jobs", content=PNG, headers=KEY)
    assert "idempotent-replayed" not in first.headers
    forms: list[dict[str, Any]] = [{"content": PNG}, {"files": {"image": ("a", PNG)}}, {"json": {"image": PNG_BASE64}}]
    for form in forms:
        again = await api.post("/v1/jobs", headers={"idempotency-key": "8e03978e"}, **form)
        assert (again.status_code, again.json()["id"]) == (202, first.json()["id"])
        assert again.headers["idempotent-replayed"] == "true"
        assert again.headers["location"] == first.headers["location"]
    run_job(ledger, first.json()["id"])
    ended = await api.post("/v1/jobs", content=PNG, headers=KEY)
    assert (ended.status_code, ended.json()["status"]) == (200, "succeeded")


@pytest.mark.parametrize("other", [{"content": PNG + b"x"}, {"content": PNG, "params": {"top_k": "3"}}], ids=str)
async def test_another_submission_under_the_key_is_refused(api: httpx.AsyncClient, other: dict[str, Any]) -> None:
    """It is a mistake of the client, and makes no job."""
    await api.post("/v1/jobs", content=PNG, headers=KEY)
    refusal = await api.post("/v1/jobs", headers=KEY, **other)
    assert (refusal.status_code, refusal.json()["code"]) == (422, "idempotency_key_reused")
    assert len((await api.get("/v1/jobs")).json()["jobs"]) == 1


async def test_many_at_once_are_one_job(settings: Settings, redis_client: redis.Redis) -> None:
    """Forty at the same time on two replicas give one job, which one of them made."""
    report(settings, ready_model(MODEL))
    async with serving(settings) as one, serving(settings) as other:
        answers = await asyncio.gather(
            *(api.post("/v1/jobs", content=PNG, headers=KEY) for _ in range(20) for api in (one, other))
        )
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" not in answer.headers for answer in answers) == 1
    assert len(ids_in_queue(redis_client, settings, MODEL)) == 1


async def test_a_key_belongs_to_its_caller(settings: Settings) -> None:
    """Two callers that make up the same key do not meet."""
    report(settings, ready_model(MODEL))
    alice, bob = new_key("alice"), new_key("bob")
    async with serving(settings.model_copy(update={"api_keys": f"{alice.line},{bob.line}"})) as api:
        answers = [
            await api.post("/v1/jobs", content=PNG, headers={**KEY, "x-api-key": made.key}) for made in (alice, bob)
        ]
    assert len({answer.json()["id"] for answer in answers}) == 2


async def test_a_refused_submission_is_not_remembered(settings: Settings) -> None:
    """Nothing was accepted under the key, so it may be tried again."""
    report(settings, ready_model(MODEL))
    async with serving(settings.model_copy(update={"max_queued_jobs": 1})) as api:
        waiting = (await api.post("/v1/jobs", content=PNG)).headers["location"]
        assert (await api.post("/v1/jobs", content=PNG, headers=KEY)).status_code == 503
        await api.delete(waiting)
        again = await api.post("/v1/jobs", content=PNG, headers=KEY)
    assert (again.status_code, "idempotent-replayed" in again.headers) == (202, False)


async def test_a_key_is_remembered_for_a_day_and_its_job_as_long_as_any(
    api: httpx.AsyncClient, probe: LedgerProbe
) -> None:
    """After that a repetition is told that its job is gone, rather than to run a second time."""
    job_id = (await api.post("/v1/jobs", content=PNG, headers=KEY)).json()["id"]
    (key,) = [key for key in probe.all_keys() if key.startswith("idem:")]
    assert 86_000 < probe.client.ttl(probe.prefix + key) <= 86_400
    probe.client.delete(f"{probe.prefix}job:{job_id}")
    gone = await api.post("/v1/jobs", content=PNG, headers=KEY)
    assert (gone.status_code, gone.json()["code"]) == (404, "job_not_found")


async def test_equal_jobs_share_an_answer(caching: httpx.AsyncClient, ledger: Ledger, probe: LedgerProbe) -> None:
    """A later one has it at once, under an id and with metadata of its own, and says that it did not run."""
    first = (await caching.post("/v1/jobs", content=PNG)).json()["id"]
    run_job(ledger, first)
    answer = await caching.post("/v1/jobs", content=PNG, params={"metadata": '{"order": "2"}'})
    job = answer.json()
    assert (answer.status_code, job["status"], job["cached"]) == (200, "succeeded", True)
    assert job["result"]["predictions"][0]["class_id"] == RESULT[0]["class_id"]
    assert (job["attempts"], job["metadata"], job["id"] != first) == (0, {"order": "2"}, True)
    assert (await caching.get(f"/v1/jobs/{first}")).json()["cached"] is False
    assert probe.trace(job["id"]).image is None
    assert [each["id"] for each in (await caching.get("/v1/jobs")).json()["jobs"]] == [job["id"], first]


async def test_equal_jobs_join_the_one_that_runs(caching: httpx.AsyncClient, ledger: Ledger) -> None:
    """While the first is taken up no other is; its answer ends them all, and wakes who waits."""
    ids = [(await caching.post("/v1/jobs", content=PNG)).json()["id"] for _ in range(3)]
    claimed, refused = ledger.run(ledger.commands.claim("worker", ids))
    assert ([job.id for job in claimed], [refusal.reason for refusal in refused]) == (ids[:1], ["waiting"] * 2)
    waiting = asyncio.create_task(caching.get(f"/v1/jobs/{ids[2]}", params={"wait": 60}))
    await eventually(lambda: services_of(caching).waiters.count == 1)
    run_job(ledger, ids[0])
    # A limit against hangs, far from the end of the wait.
    async with asyncio.timeout(20):
        assert (await waiting).json()["cached"] is True
    assert (await caching.get(f"/v1/jobs/{ids[1]}")).json()["status"] == "succeeded"


async def test_a_failure_is_not_shared(caching: httpx.AsyncClient, ledger: Ledger) -> None:
    """Those that waited for it run on their own."""
    ids = [(await caching.post("/v1/jobs", content=PNG)).json()["id"] for _ in range(2)]
    ledger.run(ledger.commands.claim("worker", ids))
    ledger.run(ledger.commands.complete("worker", [failure(ids[0], ModelFailed("No."))]))
    claimed, _ = ledger.run(ledger.commands.claim("worker", ids[1:]))
    assert [job.id for job in claimed] == ids[1:]


@pytest.mark.parametrize(
    "other",
    [
        {"content": PNG, "headers": {"cache-control": "max-age=0, No-Cache"}},
        {"content": PNG + b"x"},
        {"content": PNG, "params": {"top_k": "3"}},
        {"content": PNG, "params": {"version": "1"}, "headers": {"cache-control": "no-store"}},
    ],
    ids=["no-cache", "another image", "another option", "no-store"],
)
async def test_whatever_differs_runs(caching: httpx.AsyncClient, ledger: Ledger, other: dict[str, Any]) -> None:
    """So does what asks for an answer of its own."""
    run_job(ledger, (await caching.post("/v1/jobs", content=PNG)).json()["id"])
    assert (await caching.post("/v1/jobs", **other)).json()["status"] == "queued"


async def test_a_new_version_or_configuration_of_the_model_answers_anew(
    caching: httpx.AsyncClient, settings: Settings, ledger: Ledger
) -> None:
    """An answer of yesterday's model is none of today's."""
    run_job(ledger, (await caching.post("/v1/jobs", content=PNG)).json()["id"])
    for change in ({"versions": ("1", "2")}, {"fingerprint": "changed"}):
        report(settings, ready_model(MODEL, **change))
        await asyncio.sleep(1.1)
        assert (await caching.post("/v1/jobs", content=PNG)).json()["status"] == "queued"


async def test_tenants_share_no_answers(settings: Settings, ledger: Ledger) -> None:
    """Or one could tell by a quick answer what another has sent."""
    report(settings, ready_model(MODEL))
    alice, bob = new_key("alice"), new_key("bob")
    changes = {"result_cache_seconds": 60, "api_keys": f"{alice.line},{bob.line}"}
    async with serving(settings.model_copy(update=changes)) as api:
        first = await api.post("/v1/jobs", content=PNG, headers={"x-api-key": alice.key})
        run_job(ledger, first.json()["id"])
        second = await api.post("/v1/jobs", content=PNG, headers={"x-api-key": bob.key})
    assert second.json()["status"] == "queued"


async def test_by_default_every_job_runs(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """The cache is off."""
    run_job(ledger, (await api.post("/v1/jobs", content=PNG)).json()["id"])
    assert (await api.post("/v1/jobs", content=PNG)).json()["status"] == "queued"
