"""How long a job has missed the version that it names: counted by the ledger, try after try."""

from __future__ import annotations

from tests.integration.ledger_probe import LedgerProbe
from tests.integration.workers import wait_until
from tidegate.commands import Return
from tidegate.errors import ModelNotAvailable, ModelOverloaded, TidegateError

OWNER = "batch-1"
ABSENT = ModelNotAvailable("The model has no version 7.")


def absent_ms(probe: LedgerProbe, job_id: str) -> int:
    """Claim the job, and read what its worker is told."""
    (claimed,), _ = probe.ledger.run(probe.commands.claim(OWNER, [job_id]))
    return claimed.absent_ms


def give_back(probe: LedgerProbe, job_id: str, error: TidegateError | None) -> None:
    """Give the job back at once, for this reason."""
    probe.ledger.run(probe.commands.release(OWNER, [Return(job_id, refund=True, error=error)]))


def test_absence_is_counted_from_the_first_miss(probe: LedgerProbe) -> None:
    """Waiting in the queue before is no absence, and further misses do not begin it anew."""
    job_id = probe.accept()[0].job_id
    probe.age(job_id)
    assert absent_ms(probe, job_id) == 0
    give_back(probe, job_id, ABSENT)
    missed_at = probe.now_ms()
    wait_until(lambda: probe.now_ms() - missed_at >= 50)
    first = absent_ms(probe, job_id)
    assert first >= 50
    give_back(probe, job_id, ABSENT)
    wait_until(lambda: probe.now_ms() - missed_at >= 150)
    assert absent_ms(probe, job_id) >= 150 > first


def test_any_other_failure_ends_the_absence(probe: LedgerProbe) -> None:
    """A server that was busy had the version: what is counted is an absence without a break."""
    job_id = probe.accept()[0].job_id
    absent_ms(probe, job_id)
    give_back(probe, job_id, ABSENT)
    missed_at = probe.now_ms()
    wait_until(lambda: probe.now_ms() - missed_at >= 50)
    assert absent_ms(probe, job_id) >= 50
    give_back(probe, job_id, ModelOverloaded("The queue of the model is full."))
    assert absent_ms(probe, job_id) == 0
