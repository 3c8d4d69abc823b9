"""Keys, whose job is whose, and how much each key may ask for; on a real Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from tests.integration.api_client import PNG, app_of, ready_model, report, run_job, serving
from tidegate.keys import new_key
from tidegate.ledger import Ledger
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

MODEL = "shared"
ALICE, BOB = new_key("alice"), new_key("bob")


def bearer(key: str) -> dict[str, str]:
    """The header that shows a key."""
    return {"authorization": f"Bearer {key}"}


@pytest.fixture
def keyed(settings: Settings) -> Settings:
    """Two tenants and one model."""
    report(settings, ready_model(MODEL))
    return settings.model_copy(update={"api_keys": f"{ALICE.line},{BOB.line}"})


@pytest.fixture
async def api(keyed: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API for them; a request without a key of its own is alice's."""
    async with serving(keyed) as client:
        client.headers.update(bearer(ALICE.key))
        yield client


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {ALICE.key}x"},
        {"authorization": f"Basic {ALICE.key}"},
        {"authorization": "", "x-api-key": "wrong"},
        {"authorization": "Bearer ü".encode()},
    ],
    ids=["empty", "no key", "longer", "basic", "wrong", "not ASCII"],
)
async def test_without_a_key_that_is_known_nothing_is_told(api: httpx.AsyncClient, headers: dict[str, Any]) -> None:
    """Every route under a version wants one, and says how it is shown; health does not."""
    for method, path in [
        ("POST", "/v1/jobs"),
        ("GET", "/v1/jobs"),
        ("POST", "/v1/jobs:batch"),
        ("POST", "/v1/jobs:get"),
        ("GET", "/v1/models"),
        ("GET", "/v1/jobs/x/events"),
    ]:
        response = await api.request(method, path, headers=headers, content=b"x" if method == "POST" else None)
        assert (response.status_code, response.json()["code"]) == (401, "unauthorized")
        assert response.headers["www-authenticate"] == "Bearer"
        assert ALICE.key not in response.text
    assert (await api.get("/healthz", headers=headers)).status_code == 200
    assert (await api.get("/readyz", headers=headers)).status_code == 200


async def test_a_key_may_come_in_either_header(api: httpx.AsyncClient) -> None:
    """As a bearer token, whose scheme has no case, or by itself."""
    for headers in (
        bearer(BOB.key),
        {"authorization": f"bearer  {BOB.key}"},
        {"authorization": "", "x-api-key": BOB.key},
    ):
        assert (await api.get("/v1/models", headers=headers)).status_code == 200


async def test_a_job_is_there_for_its_own_key_alone(api: httpx.AsyncClient, ledger: Ledger) -> None:
    """To any other it does not exist, whatever is asked of it; and stays as it was."""
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    others: list[tuple[str, str]] = [("GET", ""), ("GET", "/events"), ("GET", "/deliveries"), ("DELETE", "")]
    for method, what in others:
        refusal = await api.request(method, place + what, headers=bearer(BOB.key))
        assert (refusal.status_code, refusal.json()["code"]) == (404, "job_not_found")
    job_id = place.rpartition("/")[2]
    found = await api.post("/v1/jobs:get", json={"ids": [job_id]}, headers=bearer(BOB.key))
    assert found.json() == {"jobs": [], "missing": [job_id]}
    assert (await api.get("/v1/jobs", headers=bearer(BOB.key))).json()["jobs"] == []
    assert (await api.get(place)).json()["status"] == "queued"
    run_job(ledger, job_id)
    assert (await api.get(place, params={"wait": 5})).json()["status"] == "succeeded"


async def test_without_keys_only_this_machine_is_served(settings: Settings) -> None:
    """A connection to any other address is refused, unless that was opened; the start says which it is."""
    report(settings, ready_model(MODEL))
    with capture_logs() as lines:
        async with serving(settings) as api:
            away = httpx.ASGITransport(app_of(api))
            async with httpx.AsyncClient(transport=away, base_url="http://192.0.2.7:8000") as client:
                refusal = await client.get("/v1/models")
                assert (refusal.status_code, refusal.json()["code"]) == (401, "unauthorized")
                assert (await client.get("/readyz")).status_code == 200
            async with httpx.AsyncClient(transport=away, base_url="http://127.0.0.1:8000") as client:
                assert (await client.get("/v1/models")).status_code == 200
        async with (
            serving(settings.model_copy(update={"open_access": True})) as api,
            httpx.AsyncClient(transport=httpx.ASGITransport(app_of(api)), base_url="http://192.0.2.7:8000") as client,
        ):
            assert (await client.get("/v1/models")).status_code == 200
    assert [line["event"] for line in lines if line["event"].startswith("api.")] == [
        "api.loopback_only",
        "api.open_to_all",
    ]


async def test_a_key_file_that_is_wrong_stops_the_start(settings: Settings, tmp_path: Path) -> None:
    """Rather than to serve nobody, or everybody."""
    from tidegate.errors import SettingsError

    with pytest.raises(SettingsError, match="TIDEGATE_API_KEYS"):
        async with serving(settings.model_copy(update={"api_keys": str(tmp_path / "none")})):
            pass


async def test_requests_of_a_key_are_limited(keyed: Settings) -> None:
    """Each answer tells what is left; beyond is a 429 with a time to come back, on every replica; a key for itself."""
    limited = keyed.model_copy(update={"key_requests": 3, "key_window_seconds": 60})
    async with serving(limited) as one, serving(limited) as other:
        for api, left in ((one, 2), (other, 1), (one, 0)):
            response = await api.get("/v1/models", headers=bearer(ALICE.key))
            assert response.status_code == 200
            assert response.headers["ratelimit-policy"] == '"requests";q=3;w=60'
            assert response.headers["ratelimit"].startswith(f'"requests";r={left};t=')
        refusal = await other.get("/v1/jobs", headers=bearer(ALICE.key))
        assert (refusal.status_code, refusal.json()["code"]) == (429, "rate_limited")
        assert refusal.json()["type"].endswith("#quota-exceeded")
        assert refusal.json()["violated-policies"] == ["requests"]
        reset = int(refusal.headers["ratelimit"].rpartition("t=")[2])
        assert 1 <= reset <= int(refusal.headers["retry-after"]) <= 60
        assert (await other.get("/v1/models", headers=bearer(BOB.key))).status_code == 200


async def test_a_refusal_tells_what_is_left_too(keyed: Settings) -> None:
    """The headers are those of the key, whatever became of the request."""
    async with serving(keyed.model_copy(update={"key_requests": 9})) as api:
        refusal = await api.get("/v1/models/none", headers=bearer(ALICE.key))
        assert refusal.status_code == 404
        assert '"requests";r=8' in refusal.headers["ratelimit"]


async def test_open_jobs_of_a_key_are_limited(keyed: Settings, ledger: Ledger) -> None:
    """As many as may be open, waiting or running; an end makes room, and other keys have their own."""
    async with serving(keyed.model_copy(update={"key_open_jobs": 2})) as api:
        first = await api.post("/v1/jobs", content=PNG, headers=bearer(ALICE.key))
        assert first.headers["ratelimit-policy"] == '"jobs";q=2;qu="concurrent-requests"'
        await api.post("/v1/jobs", content=PNG, headers=bearer(ALICE.key))
        refusal = await api.post("/v1/jobs", content=PNG, headers=bearer(ALICE.key))
        assert (refusal.status_code, refusal.json()["violated-policies"]) == (429, ["jobs"])
        assert refusal.headers["ratelimit"] == '"jobs";r=0'
        assert int(refusal.headers["retry-after"]) >= 1
        assert (await api.post("/v1/jobs", content=PNG, headers=bearer(BOB.key))).status_code == 202
        run_job(ledger, first.json()["id"])
        assert (await api.post("/v1/jobs", content=PNG, headers=bearer(ALICE.key))).status_code == 202


async def test_a_flood_leaves_room_in_the_queue_for_others(keyed: Settings) -> None:
    """One key alone gets nine tenths of a queue and is then told of its share; another still gets in."""
    async with serving(keyed.model_copy(update={"max_queued_jobs": 20})) as api:
        codes = [(await api.post("/v1/jobs", content=PNG, headers=bearer(ALICE.key))).status_code for _ in range(20)]
        assert codes == [202] * 18 + [429] * 2
        assert (await api.post("/v1/jobs", content=PNG, headers=bearer(BOB.key))).status_code == 202
