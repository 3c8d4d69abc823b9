"""Webhooks and images by URL as clients of the API meet them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.integration.api_client import PNG, PNG_BASE64, ready_model, report, run_job, serving
from tests.integration.ledger_probe import LedgerProbe
from tidegate.jobs import State, new_job_id
from tidegate.ledger import Ledger
from tidegate.outgoing import FETCHES, WEBHOOKS, Errand, take
from tidegate.settings import Settings
from tidegate.webhooks.deliveries import DeliveryState, Report, delivery_id, record, start_delivery
from tidegate.webhooks.messages import render
from tidegate.webhooks.signing import new_secret

pytestmark = pytest.mark.anyio

HOOK = "https://example.com/hook?token=sw0rdfish"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """With a secret, so that webhooks can be asked for."""
    return settings.model_copy(update={"webhook_secret": Settings(webhook_secret=new_secret()).webhook_secret})


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API, with one model."""
    report(settings, ready_model("m"))
    async with serving(settings) as client:
        yield client


def errand(ledger: Ledger, settings: Settings) -> Errand:
    """The next webhook that may go."""
    (next_one,) = ledger.run(take(WEBHOOKS, settings, room=1)).errands
    return next_one


async def test_webhook_can_be_asked_for_in_each_form(api: httpx.AsyncClient, probe: LedgerProbe) -> None:
    """As parts, in JSON and in the query; it stands in the job's record and in no answer."""
    for response in (
        await api.post("/v1/jobs", files={"image": ("i.png", PNG)}, data={"webhook_url": HOOK}),
        await api.post("/v1/jobs", json={"image": PNG_BASE64, "webhook_url": HOOK}),
        await api.post("/v1/jobs", content=PNG, params={"webhook_url": HOOK, "webhook_events": "job.failed"}),
    ):
        assert response.status_code == 202
        assert b"sw0rdfish" in probe.trace(response.json()["id"]).record[b"webhook"]
        assert "sw0rdfish" not in response.text
        assert "sw0rdfish" not in (await api.get(response.headers["location"])).text


async def test_webhook_says_what_the_api_says(api: httpx.AsyncClient, ledger: Ledger, settings: Settings) -> None:
    """Its data is the answer of GET at the end of the job, byte for byte in meaning."""
    job_id = (await api.post("/v1/jobs", content=PNG, params={"webhook_url": HOOK})).json()["id"]
    run_job(ledger, job_id)
    attempt = ledger.run(start_delivery(errand(ledger, settings), settings))
    assert attempt is not None
    assert attempt.job is not None
    message = httpx.Response(200, content=render(attempt.event, attempt.job, path=attempt.path)).json()
    shown = (await api.get(f"/v1/jobs/{job_id}")).json()
    assert message == {"type": "job.succeeded", "timestamp": shown["finished_at"], "data": shown}


@pytest.mark.parametrize("field", ["webhook_url", "image_url"])
@pytest.mark.parametrize(
    "url", ["http://127.0.0.1/", "http://localhost/", "ftp://example.com/", "http://a@example.com/"]
)
async def test_url_that_leads_inside_is_refused_at_once(
    api: httpx.AsyncClient, probe: LedgerProbe, field: str, url: str
) -> None:
    """422, with nothing accepted, and nothing of the URL in the answer."""
    body = {"image": PNG_BASE64, field: url}
    if field == "image_url":
        del body["image"]
    response = await api.post("/v1/jobs", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "url_not_allowed")
    assert field in response.json()["detail"]
    assert "127.0.0.1" not in response.text
    assert not any(key.startswith("job:") for key in probe.all_keys())


@pytest.mark.parametrize(
    "body", [{"image": PNG_BASE64, "image_url": "https://example.com/"}, {"image_url": 5}, {"image_url": None}, {}]
)
async def test_there_must_be_one_image(api: httpx.AsyncClient, body: dict[str, object]) -> None:
    """Neither two, nor none, nor a URL that is no string."""
    response = await api.post("/v1/jobs", json=body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid_field")


async def test_job_by_url_is_accepted_and_waits_to_be_fetched(
    api: httpx.AsyncClient, probe: LedgerProbe, ledger: Ledger, settings: Settings
) -> None:
    """Queued, in no place yet; it can be asked for, waited for and canceled like any other."""
    response = await api.post("/v1/jobs", json={"image_url": "https://example.com/cat.jpg"})
    job = response.json()
    assert (response.status_code, job["status"], job["queue_position"]) == (202, "queued", None)
    assert "example.com" not in response.text
    assert probe.trace(job["id"]).places == {"fetching:m"}
    (fetch,) = ledger.run(take(FETCHES, settings, room=1)).errands
    assert fetch.id == job["id"]
    assert (await api.delete(job["urls"]["cancel"])).json()["status"] == "canceled"


async def test_deliveries_of_a_job_are_told(
    api: httpx.AsyncClient, ledger: Ledger, settings: Settings, probe: LedgerProbe
) -> None:
    """From none over each attempt to the end, without the URL; also when the job is no longer kept."""
    job_id = (await api.post("/v1/jobs", content=PNG, params={"webhook_url": HOOK})).json()["id"]
    place = f"/v1/jobs/{job_id}/deliveries"
    assert (await api.get(place)).json() == {"deliveries": []}
    run_job(ledger, job_id)
    (waiting,) = (await api.get(place)).json()["deliveries"]
    assert (waiting["state"], waiting["attempts"], waiting["host"]) == ("pending", 0, "example.com:443")
    attempt = ledger.run(start_delivery(errand(ledger, settings), settings))
    assert attempt is not None
    ledger.run(record(attempt, Report(DeliveryState.FAILED, host_works=True, status=404, note="Not Found")))
    probe.client.delete(f"{probe.prefix}job:{job_id}")
    response = await api.get(place)
    (ended,) = response.json()["deliveries"]
    assert ended["id"] == delivery_id(job_id, State.SUCCEEDED)
    assert (ended["event"], ended["state"]) == ("job.succeeded", "failed")
    assert (ended["attempts"], ended["last_status"], ended["last_note"]) == (1, 404, "Not Found")
    assert ended["next_attempt_at"] is None
    assert "sw0rdfish" not in response.text


async def test_delivery_can_be_asked_for_once_more(api: httpx.AsyncClient, ledger: Ledger, settings: Settings) -> None:
    """Whatever became of it, under the same id."""
    job_id = (await api.post("/v1/jobs", content=PNG, params={"webhook_url": HOOK})).json()["id"]
    run_job(ledger, job_id)
    attempt = ledger.run(start_delivery(errand(ledger, settings), settings))
    assert attempt is not None
    ledger.run(record(attempt, Report(DeliveryState.DELIVERED, host_works=True, status=200)))
    again = await api.post(f"/v1/jobs/{job_id}/deliveries/{attempt.delivery_id}/redeliver")
    assert (again.status_code, again.json()["state"], again.json()["attempts"]) == (202, "pending", 1)
    assert errand(ledger, settings).id == attempt.delivery_id


async def test_what_is_not_there_is_not_found(api: httpx.AsyncClient) -> None:
    """Unknown jobs, unknown deliveries, and a delivery of another job."""
    job_id = (await api.post("/v1/jobs", content=PNG)).json()["id"]
    for unknown in (new_job_id(), "x", "%00"):
        response = await api.get(f"/v1/jobs/{unknown}/deliveries")
        assert (response.status_code, response.json()["code"]) == (404, "job_not_found")
    for delivery in (delivery_id(job_id, State.SUCCEEDED), delivery_id(new_job_id(), State.FAILED), "x"):
        response = await api.post(f"/v1/jobs/{job_id}/deliveries/{delivery}/redeliver")
        assert (response.status_code, response.json()["code"]) == (404, "delivery_not_found")


async def test_webhooks_are_refused_where_there_is_no_secret(settings: Settings) -> None:
    """With the name of the field."""
    report(settings, ready_model("m"))
    async with serving(settings.model_copy(update={"webhook_secret": None})) as api:
        response = await api.post("/v1/jobs", content=PNG, params={"webhook_url": HOOK})
    assert (response.status_code, response.json()["errors"][0]["pointer"]) == (422, "#/webhook_url")
