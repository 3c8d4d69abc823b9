"""Jobs that failed for a cause of ours: kept for a while, listed by code, and run again as new jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tests.integration.ledger_probe import HOUR_MS, MODEL, LedgerProbe, failure, new_job, success
from tests.integration.redis_server import RedisServer
from tidegate.cli.commands import app
from tidegate.commands import Return
from tidegate.errors import (
    ImageCorrupt,
    InferenceTimeout,
    InternalError,
    ModelFailed,
    ModelOutputInvalid,
    ModelOverloaded,
    ModelRejectedInput,
    TidegateError,
    UnsupportedFormat,
    WorkerLost,
)
from tidegate.jobs import State, new_job_id
from tidegate.ledger import Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.tickets import ticket_lists

OWNER = "batch-1"
BROKEN = ModelFailed("The model failed inside.")


def fail(probe: LedgerProbe, error: TidegateError = BROKEN, **fields: Any) -> str:
    """A job that failed; gives its id."""
    job_id = probe.accept(**fields)[0].job_id
    probe.claim(OWNER, job_id)
    assert probe.ledger.run(probe.commands.complete(OWNER, [failure(job_id, error)])) == ["failed"]
    return job_id


def requeue(probe: LedgerProbe, job_id: str) -> tuple[str, str]:
    """Run it again; gives what became of it, and the new job's id."""
    (answer,) = probe.ledger.run(probe.commands.requeue({job_id: new_job_id()}))
    return answer.state, answer.job_id


def under(probe: LedgerProbe, settings: Settings, **changes: Any) -> LedgerProbe:
    """The same ledger under other settings."""
    return LedgerProbe(Ledger(probe.client, settings.model_copy(update=changes)))


# What is kept, and for how long


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (WorkerLost("x"), True),
        (ModelFailed("x"), True),
        (InferenceTimeout("x"), True),
        (ModelOverloaded("x"), True),
        (ModelRejectedInput("x"), True),
        (ModelOutputInvalid("x"), True),
        (InternalError("x"), True),
        (ImageCorrupt("x"), False),
        (UnsupportedFormat("x"), False),
    ],
    ids=lambda value: value.code if isinstance(value, TidegateError) else "",
)
def test_dead_letter_is_a_failure_whose_cause_is_ours(
    probe: LedgerProbe,
    error: TidegateError,
    kept: bool,  # noqa: FBT001 - a parameter
) -> None:
    """The image stays where running it again may help without the client, and goes where the image is to blame."""
    job_id = fail(probe, error)

    assert (probe.trace(job_id).image is not None) is kept
    assert probe.grave_counts() == ({error.code: 1, "bytes": len(b"an image")} if kept else {})


def test_dead_letter_outlives_the_results(probe: LedgerProbe, settings: Settings) -> None:
    """Its record stays as long as its image; that of any other job goes with the results."""
    probe = under(probe, settings, result_ttl_seconds=60, dead_letter_ttl_seconds=7200)
    dead, corrupt = fail(probe), fail(probe, ImageCorrupt("x"))

    assert 7000 < probe.client.ttl(f"{probe.prefix}job:{dead}") <= 7200
    assert 7000 < probe.client.ttl(f"{probe.prefix}input:{dead}") <= 7200
    assert 0 < probe.client.ttl(f"{probe.prefix}job:{corrupt}") <= 60


def test_dead_letter_weighs_on_its_own_account(probe: LedgerProbe) -> None:
    """It takes no room from the queue, and what the queue holds takes none from it."""
    job_id = fail(probe)
    assert probe.open_counts() == {}

    assert requeue(probe, job_id)[0] == "queued"

    assert probe.grave_counts() == {}
    assert probe.open_counts() == {"jobs": 1, "bytes": 8, f"bytes:{MODEL}": 8}


def test_dead_letters_beyond_their_room_are_ordinary_failures(probe: LedgerProbe, settings: Settings) -> None:
    """A flood of failures neither fills Redis nor pushes out the first of them."""
    probe = under(probe, settings, max_dead_letter_bytes=20)
    first, second, third = (fail(probe, image=b"x" * 9) for _ in range(3))

    assert [probe.trace(job_id).dead_letter for job_id in (first, second, third)] == [True, True, False]
    assert probe.trace(third).image is None
    assert (probe.get(third).error or {})["code"] == "model_failed"
    assert requeue(probe, third)[0] == "gone"


def test_dead_letters_can_be_done_without(probe: LedgerProbe, settings: Settings) -> None:
    """With a lifetime of 0 nothing is kept."""
    probe = under(probe, settings, dead_letter_ttl_seconds=0)
    job_id = fail(probe)
    assert probe.trace(job_id).image is None
    assert probe.grave_counts() == {}


def test_sweep_takes_dead_letters_whose_time_is_over(probe: LedgerProbe) -> None:
    """Image, index and counts go; the younger one stays."""
    old, young = fail(probe), fail(probe)
    probe.client.zadd(f"{probe.prefix}dead:model_failed", {f"{old}:8": 1}, xx=True)

    probe.sweep()

    assert (probe.trace(old).image, probe.trace(young).image) == (None, b"an image")
    assert probe.grave_counts() == {"model_failed": 1, "bytes": 8}
    assert requeue(probe, old)[0] == "gone"
    probe.client.zadd(f"{probe.prefix}dead:model_failed", {f"{young}:8": 1}, xx=True)
    probe.sweep()
    assert not {key for key in probe.all_keys() if key.startswith(("dead", "input"))}


def test_dead_letter_is_made_and_run_again_in_a_full_redis(own_redis: RedisServer, clean_environment: None) -> None:
    """Neither needs room: what was accepted finishes, and what failed can be tried."""
    settings = load_settings({}, redis_url=own_redis.url)
    with connect(settings) as client:
        probe = LedgerProbe(Ledger(client, settings))
        job_id = probe.accept()[0].job_id
        probe.claim(OWNER, job_id)
        client.config_set("maxmemory", "1")

        probe.ledger.run(probe.commands.complete(OWNER, [failure(job_id, BROKEN)]))

        assert client.hget(f"{probe.prefix}job:{job_id}", "dead") == b"model_failed"
        assert requeue(probe, job_id)[0] == "queued"


# Run again


def test_requeued_letter_is_a_new_job_with_all_that_was_asked(probe: LedgerProbe) -> None:
    """Model, version, priority, options and image are the old ones; tries, times and deadline are not."""
    job = new_job(version="2", top_k=3, metadata={"album": "x"}, priority="low", expires_in_ms=HOUR_MS)
    probe.ledger.run(probe.commands.accept([job]))
    probe.claim(OWNER, job.id)
    probe.ledger.run(probe.commands.complete(OWNER, [failure(job.id, BROKEN)]))
    before = probe.trace(job.id).record

    state, new_id = requeue(probe, job.id)

    assert state == "queued"
    record = probe.get(new_id)
    assert (record.state, record.attempts, record.error, record.deadline_ms) == (State.QUEUED, 0, None, None)
    assert (record.version, record.requeue_of) == ("2", job.id)
    assert record.options == {"top_k": 3, "metadata": {"album": "x"}}
    assert probe.trace(new_id).scores.keys() == {f"queued:{MODEL}:low"}
    claimed, _ = probe.ledger.run(probe.commands.claim(OWNER, [new_id]))
    assert [(each.image, each.attempts) for each in claimed] == [(job.image, 1)]
    after = probe.trace(job.id).record
    assert after.pop(b"requeued_as").decode() == new_id
    assert after == {name: value for name, value in before.items() if name != b"dead"}


def test_requeued_suspect_still_runs_alone(probe: LedgerProbe, settings: Settings) -> None:
    """What killed its process three times gets no neighbours to take along."""
    job_id = probe.accept()[0].job_id
    for attempt in range(settings.max_attempts):
        probe.claim(f"batch-{attempt}", job_id, alone=True)
        probe.ledger.run(probe.commands.lose(f"batch-{attempt}", [job_id]))
    assert probe.get(job_id).state is State.FAILED

    _, new_id = requeue(probe, job_id)

    assert probe.claim("in company", new_id) == []
    assert probe.claim("alone", new_id, alone=True) == [new_id]


def test_letter_is_run_again_once(probe: LedgerProbe) -> None:
    """A second request, or the first one again because its reply was lost, makes no second job."""
    job_id = fail(probe)
    command = probe.commands.requeue({job_id: new_job_id()})
    (first,) = probe.ledger.run(command)

    (again,) = probe.ledger.run(command)
    another = requeue(probe, job_id)

    assert (again.state, again.job_id) == ("queued", first.job_id)
    assert another == ("requeued", first.job_id)
    assert probe.open_counts()["jobs"] == 1


def test_only_dead_letters_are_run_again(probe: LedgerProbe) -> None:
    """Not what waits, ended well, failed by its client's fault, or never was."""
    waiting, done, corrupt = probe.accept()[0].job_id, probe.accept()[0].job_id, fail(probe, ImageCorrupt("x"))
    probe.claim(OWNER, done)
    probe.ledger.run(probe.commands.complete(OWNER, [success(done)]))

    answers = [requeue(probe, job_id)[0] for job_id in (waiting, done, corrupt, new_job_id())]

    assert answers == ["not_failed", "not_failed", "gone", "unknown"]


# The command


@pytest.fixture
def tidegate(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Runs ``tidegate jobs ...`` on the test's ledger."""
    monkeypatch.setenv("TIDEGATE_REDIS_URL", settings.redis_url)
    monkeypatch.setenv("TIDEGATE_KEY_PREFIX", settings.key_prefix)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["jobs", *arguments])

    yield run
    with connect(settings) as client:
        client.delete(*ticket_lists(MODEL))


def listed(tidegate: Any, *arguments: str) -> list[str]:
    """The ids that a list shows."""
    result = tidegate("list", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return [job["id"] for job in json.loads(result.output)]


def test_command_lists_dead_letters_by_code(tidegate: Any, probe: LedgerProbe) -> None:
    """The latest first, of one code or of all, of one model or of all, as many as are wanted."""
    lost, failed, other = fail(probe, WorkerLost("x")), fail(probe), fail(probe, model="another")
    probe.client.zincrby(f"{probe.prefix}dead:model_failed", 1, f"{other}:8")

    assert listed(tidegate, "--state", "failed", "--code", "worker_lost") == [lost]
    assert listed(tidegate, "--code", "model_failed") == [other, failed]
    assert listed(tidegate, "--code", "model_failed", "--limit", "1") == [other]
    assert listed(tidegate, "--model", "another") == [other]
    assert set(listed(tidegate)) == {lost, failed, other}
    assert listed(tidegate, "--code", "no_such_code") == []


def test_command_lists_what_waits_and_runs(tidegate: Any, probe: LedgerProbe) -> None:
    """Waiting jobs in the order in which they will run, those that were put off last."""
    low, normal, high, put_off, running = (
        probe.accept(priority=priority)[0].job_id for priority in ("low", "normal", "high", "normal", "normal")
    )
    probe.claim(OWNER, put_off, running)
    probe.ledger.run(probe.commands.release(OWNER, [Return(put_off, delay_ms=HOUR_MS)]))

    assert listed(tidegate, "--state", "queued") == [high, normal, low, put_off]
    assert listed(tidegate, "--state", "running") == [running]
    assert tidegate("list", "--state", "succeeded").exit_code == 2


def test_command_shows_a_job(tidegate: Any, probe: LedgerProbe) -> None:
    """Everything that is known, for people and for programs; an unknown id is a failure."""
    job_id = fail(probe)

    document = json.loads(tidegate("show", job_id, "--json").output)
    text = tidegate("show", job_id)

    assert (document["id"], document["state"], document["error"]["code"]) == (job_id, "failed", "model_failed")
    assert document["finished_at"].endswith("+00:00")
    assert "model_failed" in text.output
    assert tidegate("show", new_job_id()).exit_code == 1


def test_command_runs_letters_again_with_their_tickets(tidegate: Any, probe: LedgerProbe) -> None:
    """Old and new id are printed in pairs, the tickets are out, and what cannot be run again is named."""
    letters, nobody = [fail(probe), fail(probe)], new_job_id()

    result = tidegate("requeue", *letters, nobody)

    assert result.exit_code == 1
    pairs = dict(line.split() for line in result.stdout.splitlines())
    assert list(pairs) == letters
    assert nobody in result.stderr
    messages: Any = probe.client.lrange(ticket_lists(MODEL)[1], 0, -1)
    assert {json.loads(message)["headers"]["id"] for message in messages} == set(pairs.values())
    assert tidegate("requeue", letters[0]).stdout.split() == [letters[0], pairs[letters[0]]]


def test_command_tells_an_outage_in_a_sentence(
    own_redis: RedisServer, monkeypatch: pytest.MonkeyPatch, clean_environment: None
) -> None:
    """No traceback when Redis is not there, and a code that says that it may go well later."""
    monkeypatch.setenv("TIDEGATE_REDIS_URL", own_redis.url)
    own_redis.kill()

    result = CliRunner().invoke(app, ["jobs", "list"])

    assert result.exit_code == 3
    assert result.stderr.startswith("tidegate: Redis cannot be reached")
