"""The ledger when there is too much of something: jobs, bytes, memory, or silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

from tests.integration.ledger_probe import HOUR_MS, MODEL, LedgerProbe, failure, new_job, success
from tests.integration.redis_server import RedisServer
from tidegate.commands import Admission, Command, Return
from tidegate.errors import ImageCorrupt, InternalError, StoreUnavailable
from tidegate.jobs import NewJob, State
from tidegate.ledger import AsyncLedger, Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect, connect_async

OWNER = "batch-1"
#: By when calls that wait for Redis are told, all together: a limit against hangs.
TOLD_SECONDS = 10.0
#: In one wait.
BEATS = 10


def accept_under(settings: Settings, ledger: Ledger, *jobs: NewJob, **limits: int) -> list[Admission]:
    """Bring jobs to a door with these limits."""
    door = Ledger(ledger.client, settings.model_copy(update=limits))
    return door.run(door.commands.accept(jobs))


# Admission


def test_jobs_beyond_the_limit_are_refused_one_by_one(ledger: Ledger, settings: Settings, probe: LedgerProbe) -> None:
    """The first ones fit and are accepted; each later one leaves nothing behind and learns the depth."""
    jobs = [new_job(image=b"12345") for _ in range(4)]

    admissions = accept_under(settings, ledger, *jobs, max_queued_jobs=2)

    assert [admission.full_of for admission in admissions] == ["", "", "jobs", "jobs"]
    assert [admission.depth for admission in admissions[2:]] == [2, 2]
    assert [ledger.get(job.id) is None for job in jobs] == [False, False, True, True]
    assert probe.waiting_bytes() == 10
    assert not {f"input:{job.id}" for job in jobs[2:]} & probe.all_keys()


def test_waiting_means_queued_or_put_off(ledger: Ledger, settings: Settings, probe: LedgerProbe) -> None:
    """A deferred job takes up a place and a running one does not; each priority counts; each model for itself."""
    low, deferred, running = (ticket.job_id for ticket in probe.accept(3, priority="low"))
    probe.claim(OWNER, deferred, running)
    ledger.run(ledger.commands.release(OWNER, [Return(deferred, delay_ms=HOUR_MS)]))

    (refused,) = accept_under(settings, ledger, new_job(), max_queued_jobs=2)
    (other,) = accept_under(settings, ledger, new_job(model="another"), max_queued_jobs=2)
    ledger.run(ledger.commands.cancel([low]))
    (accepted,) = accept_under(settings, ledger, new_job(), max_queued_jobs=2)

    assert (refused.full_of, refused.depth) == ("jobs", 2)
    assert other.ticket is not None
    assert accepted.ticket is not None


def test_bytes_beyond_the_limit_are_refused_and_smaller_ones_still_fit(ledger: Ledger, settings: Settings) -> None:
    """The limit is over all models and judged job by job; an end makes room."""
    big, small = new_job(image=b"x" * 80), new_job(image=b"x" * 20, model="another")
    too_big, tiny = new_job(image=b"x" * 30), new_job(image=b"x")

    first = accept_under(settings, ledger, big, too_big, small, tiny, max_queued_bytes=100)
    ledger.run(ledger.commands.cancel([big.id]))
    (again,) = accept_under(settings, ledger, too_big, max_queued_bytes=100)

    assert [admission.full_of for admission in first] == ["", "bytes", "", "bytes"]
    assert again.ticket is not None


@pytest.mark.parametrize(
    ("limits", "full_of", "depth"),
    [
        ({"max_queued_jobs": 2}, "jobs", 2),
        ({"max_all_jobs": 3}, "all_jobs", 3),
        ({"max_model_bytes": 20}, "model_bytes", 2),
        ({"max_queued_bytes": 30}, "bytes", 3),
    ],
    ids=str,
)
def test_each_limit_refuses_by_its_name(
    probe: LedgerProbe, settings: Settings, limits: dict[str, int], full_of: str, depth: int
) -> None:
    """Jobs and bytes are limited a model and in all, also within one call; depth and rate are of what is full."""
    done = [probe.accept(model=model)[0].job_id for model in (MODEL, "another")]
    probe.claim(OWNER, *done)
    probe.ledger.run(probe.commands.complete(OWNER, [success(job_id) for job_id in done]))
    door = Ledger(probe.client, settings.model_copy(update=limits))
    jobs = [new_job(model=model, image=b"x" * 9) for model in ("another", MODEL, MODEL, MODEL)]

    *taken, refused = door.run(door.commands.accept(jobs))

    assert [admission.full_of for admission in taken] == ["", "", ""]
    assert (refused.ticket, refused.full_of, refused.depth) == (None, full_of, depth)
    ends = 1 if full_of in ("jobs", "model_bytes") else 2
    assert refused.drain_rate == pytest.approx(ends / 10, rel=0.1)


def test_refusal_tells_how_fast_the_queue_drains(ledger: Ledger, settings: Settings, probe: LedgerProbe) -> None:
    """Who is refused learns the ends a second of the last while, of this model alone."""
    done = [ticket.job_id for ticket in probe.accept(20)]
    (idle,) = accept_under(settings, ledger, new_job(), max_queued_jobs=1)
    probe.claim(OWNER, *done)
    ledger.run(ledger.commands.complete(OWNER, [success(job_id) for job_id in done]))
    probe.accept(1)
    probe.accept(1, model="another")

    (busy,) = accept_under(settings, ledger, new_job(), max_queued_jobs=1)
    (other,) = accept_under(settings, ledger, new_job(model="another"), max_queued_jobs=1)

    # Twenty ends just now, over a time constant of 10 s.
    assert busy.drain_rate == pytest.approx(2.0, rel=0.2)
    assert idle.drain_rate == other.drain_rate == 0.0


def test_drain_rate_survives_a_clock_that_is_set_back(ledger: Ledger, settings: Settings, probe: LedgerProbe) -> None:
    """An end that lies a day ahead is as good as one just now: the rate stays a number that one can divide by."""
    probe.client.hset(
        f"{probe.prefix}stats:{MODEL}", mapping={"rate_count": 10, "rate_at_ms": probe.now_ms() + 24 * HOUR_MS}
    )
    job_id = probe.accept()[0].job_id
    probe.claim(OWNER, job_id)
    ledger.run(ledger.commands.complete(OWNER, [success(job_id)]))
    probe.accept()

    (refused,) = accept_under(settings, ledger, new_job(), max_queued_jobs=1)

    assert refused.drain_rate == pytest.approx(1.1, rel=0.01)


# Refusals of Redis


@pytest.fixture
def own_settings(own_redis: RedisServer, clean_environment: None) -> Settings:
    """Of a Redis that the test may harm."""
    return load_settings({}, redis_url=own_redis.url)


@pytest.fixture
def own_probe(own_settings: Settings) -> Iterator[LedgerProbe]:
    """The ledger in that Redis."""
    with connect(own_settings) as client:
        yield LedgerProbe(Ledger(client, own_settings))


def fill(probe: LedgerProbe) -> None:
    """Redis holds more than it may: every command that could need memory is refused."""
    probe.client.config_set("maxmemory", "1")
    with pytest.raises(redis.exceptions.OutOfMemoryError):
        probe.client.set("any", "thing")


def test_full_redis_accepts_nothing_at_all(own_probe: LedgerProbe) -> None:
    """A job that finds Redis full leaves no key, no count and no place in an index behind."""
    own_probe.accept()
    keys, waiting = own_probe.all_keys(), own_probe.waiting_bytes()
    fill(own_probe)

    with pytest.raises(StoreUnavailable, match="full"):
        own_probe.accept(3, model="another", expires_in_ms=HOUR_MS, metadata={"a": "b"})

    assert own_probe.all_keys() == keys
    assert own_probe.waiting_bytes() == waiting


def test_what_was_accepted_finishes_in_a_full_redis(own_probe: LedgerProbe) -> None:
    """Claim, renew, release, lose, complete and cancel need no room: a full Redis empties itself."""
    run, commands = own_probe.ledger.run, own_probe.commands
    good, bad, unwanted, lost, paused = (ticket.job_id for ticket in own_probe.accept(5))
    fill(own_probe)

    assert len(own_probe.claim(OWNER, good, bad, lost, paused)) == 4
    assert run(commands.renew([(OWNER, good), (OWNER, bad)])) == 2
    assert [returned.state for returned in run(commands.release(OWNER, [Return(paused, HOUR_MS)]))] == ["deferred"]
    assert [returned.state for returned in run(commands.lose(OWNER, [lost]))] == ["queued"]
    broken = failure(bad, ImageCorrupt("The file is truncated."))
    assert run(commands.complete(OWNER, [success(good), broken])) == ["succeeded", "failed"]
    assert run(commands.cancel([unwanted, lost, paused])) == ["canceled"] * 3
    assert own_probe.waiting_bytes() == 0


@pytest.mark.parametrize("lock", [True, False], ids=["with the lock", "without the lock"])
@pytest.mark.parametrize("what", ["expired", "lost", "due", "reticketed"])
def test_full_redis_is_swept(own_probe: LedgerProbe, what: str, lock: bool) -> None:  # noqa: FBT001 - a parameter
    """Deadlines, leases, pauses and lost tickets are looked after in a full Redis too."""
    own_probe.sweep()
    job_id = own_probe.accept(expires_in_ms=HOUR_MS)[0].job_id
    if what == "reticketed":
        own_probe.age(job_id)
    elif what == "expired":
        own_probe.pass_deadline(job_id)
    else:
        own_probe.claim(OWNER, job_id)
    if what == "due":
        own_probe.ledger.run(own_probe.commands.release(OWNER, [Return(job_id, delay_ms=HOUR_MS)]))
        own_probe.end_pause(job_id)
    own_probe.lapse_lease(job_id)
    fill(own_probe)

    swept = own_probe.ledger.run(own_probe.commands.sweep([(MODEL, ["a", "b", "c"])], lock=lock))

    assert {name: getattr(swept, name) for name in ("expired", "lost", "due", "reticketed")} == {
        "expired": 0, "lost": 0, "due": 0, "reticketed": 0, what: 1
    }  # fmt: skip


def make_replica(client: redis.Redis) -> None:
    """A failover made it the replica of a server that is not there."""
    client.execute_command("REPLICAOF", "127.0.0.1", "1")


def miss_replicas(client: redis.Redis) -> None:
    """It must not write without a replica, and has none."""
    client.config_set("min-replicas-to-write", "1")


def forbid_scripts(client: redis.Redis) -> None:
    """An operator took the right to run scripts away."""
    client.acl_setuser("default", enabled=True, reset=False, commands=["-evalsha"])


@pytest.mark.parametrize("harm", [make_replica, miss_replicas, forbid_scripts])
def test_redis_that_refuses_writes_is_an_outage(own_probe: LedgerProbe, harm: Callable[[redis.Redis], None]) -> None:
    """After a failover, without its replicas or without rights Redis answers, but the ledger is unavailable."""
    job_id = own_probe.accept()[0].job_id
    before = own_probe.trace(job_id)
    harm(own_probe.client)

    refused: list[Command[Any]] = [own_probe.commands.accept([new_job()]), own_probe.commands.claim(OWNER, [job_id])]
    for command in refused:
        with pytest.raises(StoreUnavailable):
            own_probe.ledger.run(command)
    assert own_probe.trace(job_id) == before


def test_broken_command_is_a_bug_and_no_outage(ledger: Ledger, probe: LedgerProbe) -> None:
    """A script that fails by its own fault must not be taken for a Redis that will come back."""
    no_lease_ms = "soon"
    arguments = [OWNER, no_lease_ms, "together", probe.accept()[0].job_id]
    broken = Command("claim", arguments, str)

    with pytest.raises(InternalError):
        ledger.run(broken)


# Silence


@pytest.fixture
def hasty_settings(own_settings: Settings) -> Settings:
    """Little patience, so that silence is told soon."""
    return own_settings.model_copy(update={"redis_timeout_seconds": 0.3})


def every_call(ledger: Ledger) -> list[Callable[[], object]]:
    """Each way in which a worker asks the ledger."""
    return [
        lambda: ledger.run(ledger.commands.claim(OWNER, [new_job().id])),
        ledger.models,
        lambda: ledger.get(new_job().id),
    ]


def every_async_call(ledger: AsyncLedger) -> list[Callable[[], Awaitable[object]]]:
    """Each way in which the API asks the ledger."""
    return [
        lambda: ledger.run(ledger.commands.accept([new_job()])),
        lambda: ledger.get(new_job().id),
        ledger.ping,
    ]


def connections_to(server: RedisServer) -> int:
    """How many it has ever had, without the one of this question."""
    with redis.Redis.from_url(server.url) as client:
        stats: Any = client.info("stats")
    return int(stats["total_connections_received"]) - 1


@pytest.mark.parametrize("warm", [True, False], ids=["connected before", "connecting"])
def test_frozen_redis_is_told_in_time_and_used_again_after(
    own_redis: RedisServer, hasty_settings: Settings, *, warm: bool
) -> None:
    """A Redis that is stopped without closing its connections holds a worker for one wait, which is not repeated."""
    with connect(hasty_settings) as client:
        ledger = Ledger(client, hasty_settings)
        if warm:
            ledger.models()
        before = connections_to(own_redis)
        own_redis.pause()
        started = time.monotonic()
        for call in every_call(ledger):
            with pytest.raises(StoreUnavailable):
                call()
        assert time.monotonic() - started < TOLD_SECONDS
        own_redis.resume()

        # A connection on which a wait was in vain is closed, so every further wait shows as another one.
        assert connections_to(own_redis) - before - 1 == len(every_call(ledger)) - warm
        assert ledger.models() == []


def test_killed_redis_is_told_at_once_and_holds_what_it_accepted(
    own_redis: RedisServer, own_probe: LedgerProbe
) -> None:
    """While Redis is gone every call says so; when it is back the same ledger goes on, scripts and jobs included."""
    job_id = own_probe.accept()[0].job_id
    own_redis.kill()

    for call in every_call(own_probe.ledger):
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            call()

    own_redis.start()
    assert own_probe.claim(OWNER, job_id) == [job_id]
    assert own_probe.trace(job_id).state is State.RUNNING


async def _frozen_then_killed(server: RedisServer, settings: Settings) -> None:
    async with connect_async(settings) as client:
        ledger = AsyncLedger(client, settings)
        await ledger.ping()
        before = connections_to(server)
        server.pause()
        async with asyncio.timeout(TOLD_SECONDS):
            await _assert_all_told(ledger, "did not answer in time")
        server.resume()
        assert connections_to(server) - before - 1 == len(every_async_call(ledger)) - 1
        await ledger.ping()
        server.kill()
        await _assert_all_told(ledger, "cannot be reached")
        server.start()
        await ledger.ping()


async def _assert_all_told(ledger: AsyncLedger, how: str) -> None:
    for call in every_async_call(ledger):
        with pytest.raises(StoreUnavailable, match=how):
            await call()


def test_api_s_ledger_tells_frozen_and_killed_redis_in_time(own_redis: RedisServer, hasty_settings: Settings) -> None:
    """The ledger on asyncio has the same limits, and works again when Redis does."""
    asyncio.run(_frozen_then_killed(own_redis, hasty_settings))


async def _crowd(server: RedisServer, settings: Settings) -> tuple[int, list[object]]:
    async with connect_async(settings, max_connections=2) as client:
        ledger = AsyncLedger(client, settings)
        await ledger.ping()
        server.pause()
        telling = asyncio.gather(*(ledger.ping() for _ in range(20)), return_exceptions=True)
        beats = 0
        while not telling.done():
            await asyncio.sleep(settings.redis_timeout_seconds / BEATS)
            beats += 1
        server.resume()
        return beats, list(await telling)


def test_crowd_before_a_frozen_redis_is_told_in_time(own_redis: RedisServer, hasty_settings: Settings) -> None:
    """Requests that wait for a free connection are bounded too, each by its own wait and not by all before it.

    One after the other on two connections, twenty would take ten waits. They are counted in beats of the event loop
    that the waits share: while a busy machine lets neither run, none is counted.
    """
    beats, outcomes = asyncio.run(_crowd(own_redis, hasty_settings))

    assert all(isinstance(outcome, StoreUnavailable) for outcome in outcomes)
    assert beats < 5 * BEATS
