"""What waiting jobs are told of their start, and deadlines that cannot be met; on a real Redis, time moved by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import httpx
import pytest

from tests.integration.api_client import PNG, ready_model, report, serving
from tests.integration.ledger_probe import MODEL, LedgerProbe, new_job, success
from tidegate.commands import Verdict
from tidegate.ledger import Ledger
from tidegate.settings import Settings

pytestmark = pytest.mark.anyio

OWNER = "batch"


def work_at(probe: LedgerProbe, *, per_second: float, model: str = MODEL) -> None:
    """The model's workers have answered so many jobs a second for the last ten seconds, while others waited."""
    probe.client.hset(
        f"{probe.prefix}stats:{model}",
        mapping={"pace_count": per_second * 10, "pace_ms": 10_000, "pace_at_ms": probe.now_ms(), "pace_behind": 1},
    )


@pytest.fixture
async def api(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The API with the model of the probe."""
    report(settings, ready_model(MODEL))
    async with serving(settings) as client:
        yield client


async def test_a_waiting_job_tells_when_it_is_likely_to_start(api: httpx.AsyncClient, probe: LedgerProbe) -> None:
    """Its place over the pace; and nothing while no pace is known."""
    probe.accept(50)
    place = (await api.post("/v1/jobs", content=PNG)).headers["location"]
    assert (await api.get(place)).json()["estimated_start_at"] is None
    work_at(probe, per_second=5)
    job = (await api.get(place)).json()
    start = datetime.fromisoformat(job["estimated_start_at"])
    assert job["queue_position"] == 50
    assert (start - datetime.now(UTC)).total_seconds() == pytest.approx(10, abs=1.5)


def test_the_pace_is_what_workers_do_while_jobs_wait(probe: LedgerProbe, ledger: Ledger) -> None:
    """Answers that leave nobody waiting tell how many came, not how many could be served."""
    for _ in range(5):
        (ticket,) = probe.accept()
        probe.claim(OWNER, ticket.job_id)
        ledger.run(ledger.commands.complete(OWNER, [success(ticket.job_id)]))
    probe.accept(10)
    (last,) = probe.accept()
    (place,) = ledger.run(ledger.commands.places([last.job_id]))
    assert place is not None
    assert (place.position, place.start_in_ms) == (10, None)


def test_the_pace_is_measured_from_ends(probe: LedgerProbe, ledger: Ledger) -> None:
    """Twenty answers in the second after an earlier one, with more waiting, are twenty a second."""
    tickets = [ticket.job_id for ticket in probe.accept(61)]
    probe.claim(OWNER, *tickets[:21])
    ledger.run(ledger.commands.complete(OWNER, [success(tickets[0])]))
    probe.client.hincrby(f"{probe.prefix}stats:{MODEL}", "pace_at_ms", -1000)
    ledger.run(ledger.commands.complete(OWNER, [success(job_id) for job_id in tickets[1:21]]))
    (place,) = ledger.run(ledger.commands.places([tickets[-1]]))
    assert place is not None
    assert place.start_in_ms == pytest.approx(place.position * 50, rel=0.2)


def test_workers_that_have_stopped_slow_the_pace_down(probe: LedgerProbe, ledger: Ledger) -> None:
    """While jobs wait and none is answered, the estimate grows with every second."""
    (last,) = sorted(ticket.job_id for ticket in probe.accept(11))[-1:]
    work_at(probe, per_second=10)
    (before,) = ledger.run(ledger.commands.places([last]))
    probe.client.hincrby(f"{probe.prefix}stats:{MODEL}", "pace_at_ms", -30_000)
    (after,) = ledger.run(ledger.commands.places([last]))
    assert before is not None
    assert after is not None
    assert before.start_in_ms == pytest.approx(1000, rel=0.1)
    assert after.start_in_ms is not None
    assert after.start_in_ms > 10_000


async def test_a_deadline_that_cannot_be_met_is_refused(api: httpx.AsyncClient, probe: LedgerProbe) -> None:
    """At once, with a time to come back, and without a trace; one that can be met is accepted."""
    probe.accept(100)
    work_at(probe, per_second=10)
    before = probe.all_keys()
    refusal = await api.post("/v1/jobs", content=PNG, params={"expires_in": "4"})
    assert (refusal.status_code, refusal.json()["code"]) == (503, "deadline_unreachable")
    assert refusal.json()["type"].endswith("#temporary-reduced-capacity")
    assert 5 <= int(refusal.headers["retry-after"]) <= 8
    assert probe.all_keys() == before
    assert (await api.post("/v1/jobs", content=PNG, params={"expires_in": "60"})).status_code == 202
    assert (await api.post("/v1/jobs", content=PNG)).status_code == 202
    urgent = await api.post("/v1/jobs", content=PNG, params={"expires_in": "4", "priority": "high"})
    assert urgent.status_code == 202


def test_while_no_pace_is_known_no_deadline_is_refused(probe: LedgerProbe, ledger: Ledger) -> None:
    """Nobody is turned away on a guess."""
    probe.accept(1000)
    (admission,) = ledger.run(ledger.commands.accept([new_job(expires_in_ms=1000)]))
    assert admission.verdict is Verdict.ACCEPTED


def test_a_tenant_is_told_its_own_place(probe: LedgerProbe, ledger: Ledger) -> None:
    """A flood of another counts as much as the lanes take turns: one of its jobs for each of the tenant's own."""
    probe.accept(1000, tenant="flood")
    mine = [ticket.job_id for ticket in probe.accept(3, tenant="trickle")]
    places = ledger.run(ledger.commands.places(sorted(mine)))
    assert [place and place.position for place in places] == [1, 3, 5]
    work_at(probe, per_second=10)
    (admission,) = ledger.run(ledger.commands.accept([new_job(expires_in_ms=2000, tenant="trickle")]))
    (flooding,) = ledger.run(ledger.commands.accept([new_job(expires_in_ms=2000, tenant="flood")]))
    assert (admission.verdict, flooding.verdict) == (Verdict.ACCEPTED, Verdict.TOO_LATE)
