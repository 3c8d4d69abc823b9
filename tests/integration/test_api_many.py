"""Many jobs at once, on a real Redis: submitted in one form, asked for by their ids, and listed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import redis

from api.intake import GROUP_JOBS
from api.lookups import MAX_LOOKUP_JOBS
from api.uploads import MAX_BATCH_IMAGES
from tests.integration.api_client import PNG, ids_in_queue, ready_model, report, run_job, services_of, serving
from tests.integration.ledger_probe import LedgerProbe
from tidegate.jobs import new_job_id
from tidegate.ledger import Ledger
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "many"
Files = list[tuple[str, tuple[str, bytes]]]


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API with two models."""
    report(settings, ready_model(MODEL), ready_model("other"))
    async with serving(settings.model_copy(update={"default_model": MODEL})) as client:
        yield client


def images(*contents: bytes) -> Files:
    """Parts of a form."""
    return [("image", (f"{place}.png", content)) for place, content in enumerate(contents)]


def scripts_run(client: redis.Redis) -> int:
    """How many scripts Redis has run so far."""
    stats: Any = client.info("commandstats")
    return int(stats.get("cmdstat_evalsha", {}).get("calls", 0))


async def test_images_of_one_form_are_a_job_each(
    api: httpx.AsyncClient, probe: LedgerProbe, redis_client: redis.Redis, settings: Settings
) -> None:
    """In their order, each with its own bytes and the options of all, in as few scripts as they fit in."""
    await services_of(api).models.all()
    contents = [PNG + os.urandom(50) for _ in range(2 * GROUP_JOBS)]
    await api.post("/v1/jobs:batch", files=images(PNG))
    before = scripts_run(redis_client)
    response = await api.post("/v1/jobs:batch", files=images(*contents), data={"top_k": "3", "metadata": '{"a": "b"}'})
    assert scripts_run(redis_client) - before == 2
    assert response.status_code == 202
    jobs = [item["job"] for item in response.json()["jobs"]]
    assert [probe.trace(job["id"]).image for job in jobs] == contents
    assert {(job["status"], str(job["metadata"])) for job in jobs} == {("queued", "{'a': 'b'}")}
    assert set(ids_in_queue(redis_client, settings, MODEL)) > {job["id"] for job in jobs}


async def test_one_bad_image_does_not_concern_the_others(api: httpx.AsyncClient) -> None:
    """In its place stands why, as a problem like any other; nothing of it is repeated."""
    response = await api.post("/v1/jobs:batch", files=images(PNG, b"<html>secret", b"", PNG))
    found = [item["problem"] and item["problem"]["code"] for item in response.json()["jobs"]]
    assert (response.status_code, found) == (202, [None, "unsupported_format", "image_corrupt", None])
    assert [item["job"] is None for item in response.json()["jobs"]] == [False, True, True, False]
    assert "secret" not in response.text


async def test_a_full_queue_refuses_those_that_find_no_room(settings: Settings) -> None:
    """Each is told its own fate."""
    report(settings, ready_model(MODEL))
    async with serving(settings.model_copy(update={"max_queued_jobs": 2})) as api:
        response = await api.post("/v1/jobs:batch", files=images(PNG, PNG, PNG))
    assert [item["problem"] and item["problem"]["code"] for item in response.json()["jobs"]] == [
        None,
        None,
        "queue_full",
    ]


async def test_a_batch_that_is_repeated_is_the_same_jobs(api: httpx.AsyncClient) -> None:
    """Each image has the key to itself, by its place; another image in a place is another request."""
    key = {"idempotency-key": "batch-1"}
    first = (await api.post("/v1/jobs:batch", files=images(PNG, PNG), headers=key)).json()["jobs"]
    again = (await api.post("/v1/jobs:batch", files=images(PNG, PNG, PNG), headers=key)).json()["jobs"]
    assert [item["job"]["id"] for item in again[:2]] == [item["job"]["id"] for item in first]
    assert again[2]["job"]["id"] not in {item["job"]["id"] for item in first}
    changed = (await api.post("/v1/jobs:batch", files=images(PNG + b"x", PNG), headers=key)).json()["jobs"]
    assert changed[0]["problem"]["code"] == "idempotency_key_reused"
    assert changed[1]["job"]["id"] == first[1]["job"]["id"]


REFUSALS: dict[str, tuple[dict[str, Any], int, str]] = {
    "no form": ({"json": {"image": "x"}}, 415, "unsupported_format"),
    "no image": ({"files": {"other": (None, "x")}}, 422, "invalid_field"),
    "only options": ({"files": {"top_k": (None, "1")}}, 400, "invalid_request"),
    "a text": ({"files": {"image": (None, "x")}}, 422, "invalid_field"),
    "a wrong option": ({"files": images(PNG), "data": {"top_k": "many"}}, 422, "invalid_field"),
    "an unknown model": ({"files": images(PNG), "data": {"model": "none"}}, 404, "model_not_found"),
    "more classes than there are": ({"files": images(PNG), "data": {"top_k": "99"}}, 422, "invalid_field"),
    "too many": ({"files": images(*[b"x"] * (MAX_BATCH_IMAGES + 1))}, 400, "invalid_request"),
    "a query": ({"files": images(PNG), "params": {"top_k": "1"}}, 422, "invalid_field"),
    "encoded": ({"files": images(PNG), "headers": {"content-encoding": "gzip"}}, 415, "unsupported_format"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
async def test_a_bad_form_is_refused_as_a_whole(
    api: httpx.AsyncClient, redis_client: redis.Redis, settings: Settings, refusal: str
) -> None:
    """It leaves nothing behind."""
    request, status, code = REFUSALS[refusal]
    response = await api.post("/v1/jobs:batch", **request)
    assert (response.status_code, response.json()["code"]) == (status, code)
    assert len(response.content) < 2048
    assert ids_in_queue(redis_client, settings, MODEL) == []


async def test_jobs_are_found_by_their_ids(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """In the order in which they were asked for, each once, as they stand; and those that are none are told."""
    ids = [(await api.post("/v1/jobs", content=PNG)).json()["id"] for _ in range(120)]
    run_job(ledger, ids[0])
    unknown = new_job_id()
    response = await api.post("/v1/jobs:get", json={"ids": [*ids, unknown, ids[0]]})
    assert response.status_code == 200
    assert [job["id"] for job in response.json()["jobs"]] == ids
    assert [job["status"] for job in response.json()["jobs"][:2]] == ["succeeded", "queued"]
    assert response.json()["missing"] == [unknown]
    assert response.json()["jobs"][0] == (await api.get(f"/v1/jobs/{ids[0]}")).json()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b"[" * 10_000, 400),
        (b"{}", 422),
        (b'{"ids": []}', 422),
        (b'{"ids": "x"}', 422),
        (b'{"ids": [5]}', 422),
        (b'{"ids": ["sw0rdfish"]}', 422),
        (b'{"ids": ["x"], "sw0rdfish": 1}', 422),
        (b'{"ids": [' + b",".join([b'"%s"' % new_job_id().encode()] * (MAX_LOOKUP_JOBS + 1)) + b"]}", 422),
        (b" " * 100_000, 413),
    ],
)
async def test_what_is_no_list_of_ids_is_refused(api: httpx.AsyncClient, body: bytes, status: int) -> None:
    """Without repeating any of it."""
    response = await api.post("/v1/jobs:get", content=body, headers={"content-type": "application/json"})
    assert response.status_code == status
    assert "sw0rdfish" not in response.text
    assert len(response.content) < 2048


async def listed(api: httpx.AsyncClient, **query: Any) -> list[str]:
    """The ids on all pages of the list."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = (await api.get("/v1/jobs", params={**query, **cursor})).json()
        found += [job["id"] for job in page["jobs"]]
        if page["next"] is None:
            return found
        assert len(page["jobs"]) == query["limit"]
        cursor = {"cursor": page["next"]}


async def test_the_list_has_all_jobs_newest_first(api: httpx.AsyncClient) -> None:
    """Page by page, none twice and none left out, though many have come in the same millisecond."""
    ids = []
    for _ in range(3):
        response = await api.post("/v1/jobs:batch", files=images(*[PNG] * 40))
        ids.append([item["job"]["id"] for item in response.json()["jobs"]])
    found = await listed(api, limit=7)
    assert len(found) == 120
    assert [set(found[start : start + 40]) for start in (80, 40, 0)] == [set(batch) for batch in ids]


async def test_the_list_is_told_by_state_and_model(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """Each state has its own jobs, each model its own, and both together what is in both."""
    ids = {
        model: [(await api.post("/v1/jobs", content=PNG, params={"model": model})).json()["id"] for _ in range(4)]
        for model in (MODEL, "other")
    }
    run_job(ledger, ids[MODEL][0])
    await api.delete(f"/v1/jobs/{ids[MODEL][1]}")
    ledger.run(ledger.commands.claim("worker", [ids[MODEL][2], ids["other"][0]]))
    assert await listed(api, limit=2, model="other") == ids["other"][::-1]
    assert await listed(api, limit=2, status="queued") == [*ids["other"][:0:-1], ids[MODEL][3]]
    assert await listed(api, limit=1, status="running") == [ids["other"][0], ids[MODEL][2]]
    assert await listed(api, limit=2, status="succeeded") == [ids[MODEL][0]]
    assert await listed(api, limit=2, status="canceled", model=MODEL) == [ids[MODEL][1]]
    assert await listed(api, limit=2, status="failed") == []
    assert len(await listed(api, limit=100)) == 8


async def test_the_list_keeps_what_is_kept(settings: Settings, probe: LedgerProbe) -> None:
    """A job whose record is gone is no longer listed, and nothing of it stays in the index."""
    report(settings, ready_model("m"))
    short = settings.model_copy(update={"result_ttl_seconds": 1})
    ledger = Ledger(probe.client, short)
    async with serving(short) as api:
        old, new = [(await api.post("/v1/jobs", content=PNG)).json()["id"] for _ in range(2)]
        run_job(ledger, old)
        while probe.client.exists(f"{probe.prefix}job:{old}"):
            assert probe.client.ttl(f"{probe.prefix}job:{old}") <= 1
        run_job(ledger, new)
        assert await listed(api, limit=10) == [new]
        assert probe.own_lists() == {"own::m:succeeded": {new}}


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "101"}, {"status": "done"}, {"cursor": "x"}, {"cursor": "1.x"}, {"secret": "x"}]
)
async def test_a_wrong_question_to_the_list_is_refused(api: httpx.AsyncClient, query: dict[str, str]) -> None:
    """By the name of what is wrong, where it has one."""
    response = await api.get("/v1/jobs", params=query)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_field")


async def test_a_list_costs_what_it_shows(settings: Settings, probe: LedgerProbe) -> None:
    """Among ten thousand jobs the few of a state are found as cheaply as among ten."""
    report(settings, ready_model("m"))

    async def cost_of_lists(api: httpx.AsyncClient) -> int:
        """What Redis spends on two, in microseconds, the cheapest time of a few: it shares its processor."""
        costs = []
        for _ in range(5):
            probe.client.config_resetstat()
            assert await listed(api, limit=10, status="canceled") == [canceled]
            assert len((await api.get("/v1/jobs", params={"limit": 10})).json()["jobs"]) == 10
            stats: Any = probe.client.info("commandstats")
            costs.append(sum(int(entry["usec"]) for entry in stats.values()))
        return min(costs)

    canceled, *_ = [ticket.job_id for ticket in probe.accept(11)]
    probe.ledger.run(probe.commands.cancel([canceled]))
    async with serving(settings) as api:
        among_few = await cost_of_lists(api)
        probe.accept(10_000)
        assert await cost_of_lists(api) < 10 * among_few
