"""The catalogue in Redis: workers write it, the API reads it."""

from __future__ import annotations

import asyncio

import pytest
import redis

from tests.integration.server_process import free_ports
from tidegate.catalogue import (
    ModelEntry,
    ModelState,
    catalogue_key,
    read_catalogue,
    read_catalogue_async,
    write_catalogue,
)
from tidegate.errors import StoreUnavailable
from tidegate.settings import Settings, load_settings
from tidegate.store import connect, connect_async

READY = ModelEntry(
    name="cats", state=ModelState.READY, versions=("1", "2"), classes=1000, batch_limit=32, input="uint8 [224, 224, 3]"
)
BROKEN = ModelEntry(name="boxes", state=ModelState.BROKEN, reason="It has two inputs.")


async def read_async(settings: Settings) -> dict[str, ModelEntry]:
    """As the API does."""
    async with connect_async(settings) as client:
        return await read_catalogue_async(client, settings)


def test_catalogue_is_empty_before_any_worker_reported(redis_client: redis.Redis, settings: Settings) -> None:
    """No report is no models, and no error."""
    assert read_catalogue(redis_client, settings) == {}
    assert asyncio.run(read_async(settings)) == {}


def test_what_workers_write_is_what_the_api_reads(redis_client: redis.Redis, settings: Settings) -> None:
    """Every field comes back, by model, in the order of their names."""
    write_catalogue(redis_client, settings, [READY, BROKEN])

    assert list(read_catalogue(redis_client, settings).items()) == [("boxes", BROKEN), ("cats", READY)]
    assert asyncio.run(read_async(settings)) == {"boxes": BROKEN, "cats": READY}


def test_entry_replaces_its_namesake_alone(redis_client: redis.Redis, settings: Settings) -> None:
    """A worker reports what it knows of; what others reported stays."""
    write_catalogue(redis_client, settings, [READY, BROKEN])
    gone = READY.model_copy(update={"state": ModelState.UNAVAILABLE, "reason": "Triton does not serve it."})

    write_catalogue(redis_client, settings, [gone])

    assert read_catalogue(redis_client, settings) == {"boxes": BROKEN, "cats": gone}


def test_report_of_nothing_changes_nothing(redis_client: redis.Redis, settings: Settings) -> None:
    """A worker that found no model leaves the catalogue as it is."""
    write_catalogue(redis_client, settings, [READY])

    write_catalogue(redis_client, settings, [])

    assert read_catalogue(redis_client, settings) == {"cats": READY}


def test_fields_of_a_newer_release_are_passed_over(redis_client: redis.Redis, settings: Settings) -> None:
    """During a rolling update an older API reads what a newer worker wrote."""
    document = READY.model_dump_json()[:-1] + ', "colour": "blue"}'
    redis_client.hset(catalogue_key(settings), "cats", document)

    assert read_catalogue(redis_client, settings) == {"cats": READY}


def test_catalogue_never_expires(redis_client: redis.Redis, settings: Settings) -> None:
    """The API accepts jobs while every worker is away, however long."""
    write_catalogue(redis_client, settings, [READY])

    assert redis_client.ttl(catalogue_key(settings)) == -1


@pytest.mark.parametrize(
    ("state", "classes", "ready", "served_before"),
    [
        (ModelState.READY, 10, True, True),
        (ModelState.UNAVAILABLE, 10, False, True),
        (ModelState.UNAVAILABLE, 0, False, False),
        (ModelState.BROKEN, 0, False, False),
    ],
)
def test_entry_tells_whether_jobs_can_run_and_may_wait(
    state: ModelState,
    classes: int,
    *,
    ready: bool,
    served_before: bool,
) -> None:
    """A model that is away keeps what is known of it, so its jobs can be checked and wait."""
    entry = ModelEntry(name="cats", state=state, classes=classes)

    assert (entry.ready, entry.served_before) == (ready, served_before)


def test_catalogue_without_redis_is_an_outage(clean_environment: None) -> None:
    """Reading and writing tell that the store cannot be reached, on both sides."""
    nowhere = load_settings({}, redis_url=f"redis://127.0.0.1:{free_ports(1)[0]}/0", redis_timeout_seconds=0.5)

    with connect(nowhere) as client:
        with pytest.raises(StoreUnavailable):
            read_catalogue(client, nowhere)
        with pytest.raises(StoreUnavailable):
            write_catalogue(client, nowhere, [READY])
    with pytest.raises(StoreUnavailable):
        asyncio.run(read_async(nowhere))


def test_entry_of_another_release_is_passed_over(redis_client: redis.Redis, settings: Settings) -> None:
    """A state that this release does not know, or no document at all, hides one model and not the others."""
    write_catalogue(redis_client, settings, [READY])
    redis_client.hset(catalogue_key(settings), "new", '{"name": "new", "state": "warming"}')
    redis_client.hset(catalogue_key(settings), "odd", "{")
    assert read_catalogue(redis_client, settings) == {"cats": READY}
