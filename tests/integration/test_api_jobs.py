"""Jobs over the API, on a real Redis: submitted in every form, asked for, canceled."""

from __future__ import annotations

import base64
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import httpx
import pytest
import redis

from tests.integration.api_client import (
    CLASSES,
    PNG,
    PNG_BASE64,
    app_of,
    eventually,
    ids_in_queue,
    ready_model,
    report,
    run_job,
    serving,
)
from tests.integration.ledger_probe import RESULT, RUN, LedgerProbe, failure
from tidegate.catalogue import ModelState
from tidegate.errors import ImageCorrupt
from tidegate.jobs import is_job_id, new_job_id
from tidegate.ledger import Ledger
from tidegate.settings import Settings
from tidegate.tickets import ticket_lists

pytestmark = pytest.mark.anyio


@pytest.fixture
def model(settings: Settings) -> str:
    """The one model there is; its queue is the test's own, for the broker's lists have no prefix."""
    name = f"m-{uuid.uuid4().hex}"
    report(settings, ready_model(name))
    return name


@pytest.fixture
async def api(settings: Settings, model: str) -> AsyncIterator[httpx.AsyncClient]:
    """The API over that Redis."""
    async with serving(settings) as client:
        yield client


FORMS: dict[str, dict[str, Any]] = {
    "plain": {"content": PNG},
    "image type": {"content": PNG, "headers": {"content-type": "image/png"}},
    "wrong image type": {"content": PNG, "headers": {"content-type": "image/jpeg; charset=binary"}},
    "octet stream": {"content": PNG, "headers": {"content-type": "application/octet-stream"}},
    "form": {"files": {"image": ("photo.png", PNG, "image/png")}},
    "form with a hostile name": {"files": {"image": ("../../etc/x\0.png", PNG, "text/html")}},
    "json": {"json": {"image": PNG_BASE64}},
    "json with a data URI": {"json": {"image": f"data:image/png;base64,{PNG_BASE64}"}},
}


@pytest.mark.parametrize("form", FORMS)
async def test_an_image_is_accepted_in_every_form(
    api: httpx.AsyncClient, probe: LedgerProbe, model: str, form: str
) -> None:
    """Whatever the form, the ledger has the very bytes, and the client a job and its address."""
    response = await api.post("/v1/jobs", **FORMS[form])
    assert response.status_code == 202
    job = response.json()
    assert is_job_id(job["id"])
    assert (job["status"], job["model"], job["attempts"]) == ("queued", model, 0)
    assert response.headers["location"] == job["urls"]["get"] == job["urls"]["cancel"] == f"/v1/jobs/{job['id']}"
    assert response.headers["retry-after"] == "1"
    assert response.headers["vary"] == "Prefer"
    assert "preference-applied" not in response.headers
    assert probe.trace(job["id"]).image == PNG


OPTIONS = {"version": "1", "top_k": "3", "priority": "high", "expires_in": "60", "metadata": '{"order": "4711"}'}


@pytest.mark.parametrize(
    "form",
    [
        {"content": PNG, "params": OPTIONS},
        {"files": {"image": ("a", PNG)}, "data": OPTIONS},
        {
            "json": {
                "image": PNG_BASE64,
                "version": "1",
                "top_k": 3,
                "priority": "high",
                "expires_in": 60,
                "metadata": {"order": "4711"},
            }
        },
    ],
    ids=["query", "form", "json"],
)
async def test_options_reach_the_worker_in_every_form(
    api: httpx.AsyncClient, ledger: Ledger, model: str, form: dict[str, Any]
) -> None:
    """Whoever claims the job sees what was asked for, and the client gets its metadata back."""
    job = (await api.post("/v1/jobs", params={**form.pop("params", {})}, **form)).json()
    assert job["metadata"] == {"order": "4711"}
    assert job["model_version"] == "1"
    assert job["expires_at"] is not None
    ((claimed,), _) = ledger.run(ledger.commands.claim("worker", [job["id"]]))
    assert claimed.version == "1"
    assert claimed.options == {"top_k": 3, "metadata": {"order": "4711"}}
    assert claimed.remaining_ms is not None
    assert 50_000 < claimed.remaining_ms <= 60_000


async def test_a_job_has_a_ticket_of_its_model_and_priority(
    api: httpx.AsyncClient, redis_client: redis.Redis, model: str
) -> None:
    """The broker has one message for each job, in the list of its priority, and nothing of the image in it."""
    for priority, broker_list in zip(("high", "normal", "low"), ticket_lists(model), strict=True):
        job = (await api.post("/v1/jobs", content=PNG, params={"priority": priority})).json()
        ticket = await eventually(partial(redis_client.rpop, broker_list))
        assert job["id"].encode() in ticket
        assert PNG_BASE64.encode() not in ticket
        assert len(ticket) < 4096


async def test_the_default_of_top_k_is_cut_to_the_classes(settings: Settings, ledger: Ledger) -> None:
    """A model of two classes is not asked for five; and who asks for more than there are is refused."""
    report(settings, ready_model("two", classes=2))
    async with serving(settings) as api:
        job = (await api.post("/v1/jobs", content=PNG)).json()
        refusal = await api.post("/v1/jobs", content=PNG, params={"top_k": "3"})
    ((claimed,), _) = ledger.run(ledger.commands.claim("worker", [job["id"]]))
    assert claimed.options == {"top_k": 2}
    assert refusal.status_code == 422
    assert refusal.json()["errors"][0]["pointer"] == "#/top_k"


async def test_a_job_tells_its_result(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """After its end it has all that the contract promises, and no more hint to poll."""
    job_id = (await api.post("/v1/jobs", content=PNG)).json()["id"]
    run_job(ledger, job_id)
    response = await api.get(f"/v1/jobs/{job_id}")
    assert response.status_code == 200
    assert "retry-after" not in response.headers
    job = response.json()
    assert job["status"] == "succeeded"
    assert job["result"] == {"predictions": [{**found, "score": None} for found in RESULT], "regions": None}
    assert job["batch"] == {"id": RUN["batch_id"], "size": RUN["batch_size"]}
    assert job["model_version"] == RUN["model_version"]
    assert job["timings"]["infer_ms"] == RUN["infer_ms"]
    assert job["timings"]["total_ms"] >= job["timings"]["queued_ms"] >= 0
    assert job["queue_position"] is None


async def test_a_job_tells_its_error(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """A failed job is a good answer about a bad end."""
    job_id = (await api.post("/v1/jobs", content=PNG)).json()["id"]
    ledger.run(ledger.commands.claim("worker", [job_id]))
    ledger.run(ledger.commands.complete("worker", [failure(job_id, ImageCorrupt("It is truncated."))]))
    response = await api.get(f"/v1/jobs/{job_id}")
    assert response.status_code == 200
    assert response.json()["error"] == {"code": "image_corrupt", "message": "It is truncated.", "retryable": False}


async def test_jobs_tell_their_place_while_they_wait(api: httpx.AsyncClient) -> None:
    """The place counts what goes before, by priority and then by time."""
    places = {}
    for name, priority in (("first", "normal"), ("second", "normal"), ("urgent", "high")):
        places[name] = (await api.post("/v1/jobs", content=PNG, params={"priority": priority})).headers["location"]
    positions = {name: (await api.get(place)).json()["queue_position"] for name, place in places.items()}
    assert positions == {"urgent": 0, "first": 1, "second": 2}


async def test_a_job_can_be_read_as_soon_as_it_is_accepted(api: httpx.AsyncClient) -> None:
    """Not once in 500 times is a job unknown after its 202."""
    for _ in range(500):
        accepted = await api.post("/v1/jobs", content=PNG)
        assert (await api.get(accepted.headers["location"])).status_code == 200


@pytest.mark.parametrize(
    "job_id",
    [new_job_id(), "not-a-uuid", "..%2f..", "%00", "x" * 5000, new_job_id().upper(), f"{{{new_job_id()}}}"],
    ids=["unknown", "word", "path", "null", "long", "upper case", "braces"],
)
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_an_unknown_job_is_not_found(api: httpx.AsyncClient, method: str, job_id: str) -> None:
    """Whether it never was, or its id is none."""
    response = await api.request(method, f"/v1/jobs/{job_id}")
    assert response.status_code == 404
    assert response.json()["code"] in ("job_not_found", "not_found")


async def test_a_waiting_job_can_be_canceled(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """It ends at once, and no worker gets it."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    response = await api.delete(place)
    assert (response.status_code, response.json()["status"]) == (200, "canceled")
    assert "retry-after" not in response.headers
    claimed, _ = ledger.run(ledger.commands.claim("worker", [response.json()["id"]]))
    assert claimed == []


async def test_a_running_job_can_be_canceled(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """The answer that its worker brings later is dropped."""
    job_id = (await api.post("/v1/jobs", content=PNG)).json()["id"]
    ledger.run(ledger.commands.claim("worker", [job_id]))
    assert (await api.delete(f"/v1/jobs/{job_id}")).json()["status"] == "canceled"
    assert (await api.get(f"/v1/jobs/{job_id}")).json()["result"] is None


@pytest.mark.parametrize("how", ["succeeded", "canceled", "expired"])
async def test_a_finished_job_cannot_be_canceled(
    api: httpx.AsyncClient, ledger: Ledger, probe: LedgerProbe, how: str
) -> None:
    """The refusal says how it ended, also when it is the cancellation that found its deadline passed."""
    job_id = (await api.post("/v1/jobs", content=PNG, params={"expires_in": "3600"})).json()["id"]
    if how == "succeeded":
        run_job(ledger, job_id)
    elif how == "canceled":
        await api.delete(f"/v1/jobs/{job_id}")
    else:
        probe.pass_deadline(job_id)
    response = await api.delete(f"/v1/jobs/{job_id}")
    assert (response.status_code, response.json()["code"]) == (409, "job_finished")
    assert how in response.json()["detail"]


async def test_the_prefix_of_a_proxy_is_part_of_the_addresses(settings: Settings, model: str) -> None:
    """Behind ``--root-path /ai`` a client is sent where the proxy will find the job, on whichever host it asked."""
    async with serving(settings) as direct:
        transport = httpx.ASGITransport(app_of(direct), root_path="/ai")
        async with httpx.AsyncClient(transport=transport, base_url="http://inside:8000") as api:
            response = await api.post("/ai/v1/jobs", content=PNG)
            assert response.headers["location"] == response.json()["urls"]["get"]
            assert response.headers["location"].startswith("/ai/v1/jobs/")
            assert (await api.get(response.headers["location"])).status_code == 200


async def test_a_model_that_is_away_still_takes_jobs(settings: Settings, redis_client: redis.Redis) -> None:
    """Its jobs wait for its return: that is what the queue is for."""
    report(settings, ready_model("away", state=ModelState.UNAVAILABLE, reason="Triton does not answer."))
    async with serving(settings) as api:
        response = await api.post("/v1/jobs", content=PNG)
        assert response.status_code == 202
        assert ids_in_queue(redis_client, settings, "away") == [response.json()["id"]]
        assert (await api.get("/readyz")).status_code == 200


async def test_a_model_that_cannot_be_served_takes_no_jobs(settings: Settings) -> None:
    """The refusal says why, and so does readiness while there is no other."""
    report(settings, ready_model("bad", state=ModelState.BROKEN, classes=0, reason="It has two inputs."))
    async with serving(settings) as api:
        response = await api.post("/v1/jobs", content=PNG, params={"model": "bad"})
        assert (response.status_code, response.json()["code"]) == (404, "model_not_found")
        assert "It has two inputs." in response.json()["detail"]
        readiness = await api.get("/readyz")
        assert readiness.status_code == 503
        assert "bad: It has two inputs." in readiness.json()["detail"]


async def test_without_a_name_the_one_model_that_can_serve_is_meant(settings: Settings) -> None:
    """A broken model beside it does not make it ambiguous, a second good one does."""
    report(settings, ready_model("good"), ready_model("bad", state=ModelState.BROKEN, classes=0))
    async with serving(settings) as api:
        assert (await api.post("/v1/jobs", content=PNG)).json()["model"] == "good"
    report(settings, ready_model("other"))
    async with serving(settings) as api:
        refusal = await api.post("/v1/jobs", content=PNG)
    assert (refusal.status_code, refusal.json()["errors"][0]["pointer"]) == (422, "#/model")
    async with serving(settings.model_copy(update={"default_model": "other"})) as api:
        assert (await api.post("/v1/jobs", content=PNG)).json()["model"] == "other"


async def test_while_no_worker_has_reported_there_is_nothing_to_accept(settings: Settings) -> None:
    """Submissions are put off, readiness is not there, and the list is empty rather than an error."""
    async with serving(settings) as api:
        for response in (
            await api.post("/v1/jobs", content=PNG),
            await api.get("/v1/models/m"),
            await api.get("/readyz"),
        ):
            assert (response.status_code, response.json()["code"]) == (503, "no_models_yet")
            assert int(response.headers["retry-after"]) >= 1
        assert (await api.get("/v1/models")).json() == {"models": []}
        assert (await api.get("/healthz")).json() == {"status": "ok"}


async def test_models_are_told_by_name(settings: Settings) -> None:
    """All in one list, and each under its own address; others are not found."""
    report(settings, ready_model("b"), ready_model("a", state=ModelState.BROKEN, classes=0, reason="Two inputs."))
    async with serving(settings) as api:
        models = (await api.get("/v1/models")).json()["models"]
        assert [(entry["name"], entry["state"], entry["reason"]) for entry in models] == [
            ("a", "broken", "Two inputs."),
            ("b", "ready", None),
        ]
        assert (await api.get("/v1/models/b")).json() == models[1]
        assert models[1]["classes"] == CLASSES
        unknown = await api.get("/v1/models/c")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "model_not_found")
        readiness = (await api.get("/readyz")).json()
        assert readiness["status"] == "ready"
        assert [entry["name"] for entry in readiness["models"]] == ["a", "b"]


@pytest.mark.parametrize(
    "limit",
    [{"max_queued_jobs": 1}, {"max_all_jobs": 1}, {"max_model_bytes": len(PNG)}, {"max_queued_bytes": len(PNG)}],
    ids=str,
)
async def test_a_full_queue_is_refused_at_the_door(
    settings: Settings, model: str, redis_client: redis.Redis, limit: dict[str, int]
) -> None:
    """By count and by bytes, with a time to come back, and without a trace of the refused."""
    async with serving(settings.model_copy(update=limit)) as api:
        accepted = await api.post("/v1/jobs", content=PNG)
        refused = await api.post("/v1/jobs", content=PNG)
    assert (refused.status_code, refused.json()["code"]) == (503, "queue_full")
    assert refused.json()["type"].endswith("#temporary-reduced-capacity")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert ids_in_queue(redis_client, settings, model) == [accepted.json()["id"]]


async def test_base64_of_any_spelling_is_the_same_job(api: httpx.AsyncClient, probe: LedgerProbe) -> None:
    """From the door to the ledger nothing is lost of an image that was wrapped in lines."""
    large = PNG + bytes(range(256)) * 1000
    lines = base64.encodebytes(large).decode().replace("\n", "\r\n")
    response = await api.post("/v1/jobs", json={"image": lines})
    assert probe.trace(response.json()["id"]).image == large
