"""Looking deliveries up: those of a job for the API, and all that are not delivered for an operator."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import redis
import redis.asyncio
from redis.exceptions import RedisError

from tidegate.outgoing import WEBHOOKS
from tidegate.settings import Settings
from tidegate.store import translate
from tidegate.webhooks.deliveries import EVENT_STATES, Delivery, delivery_id


async def deliveries_of(client: redis.asyncio.Redis, settings: Settings, job_id: str) -> list[Delivery] | None:
    """The deliveries of a job; None when neither they nor the job are there (any more).

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    prefix = settings.key_prefix
    ids = [delivery_id(job_id, state) for state in EVENT_STATES]
    try:
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.exists(f"{prefix}job:{job_id}")
            for each in ids:
                pipeline.hgetall(f"{prefix}delivery:{each}")
            known, *hashes = await pipeline.execute()
    except RedisError as error:
        raise translate(error) from error
    found = _read(ids, hashes)
    return found if found or known else None


def waiting_deliveries(client: redis.Redis, settings: Settings, *, most: int) -> list[Delivery]:
    """Deliveries that are being sent or wait for their time.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    lines = settings.key_prefix + WEBHOOKS.lines
    try:
        ids: list[str] = []
        for host in _texts(client.zrange(lines, 0, -1)):
            for kind in ("busy", "wait"):
                ids += _texts(client.zrange(f"{lines}:{kind}:{host}", 0, most))
            if len(ids) >= most:
                break
        return _get(client, settings, ids[:most])
    except RedisError as error:
        raise translate(error) from error


def undelivered(client: redis.Redis, settings: Settings, *, most: int) -> list[Delivery]:
    """Deliveries that ended without being delivered, the latest first.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    try:
        return _get(client, settings, _texts(client.zrevrange(f"{settings.key_prefix}undelivered", 0, most - 1)))
    except RedisError as error:
        raise translate(error) from error


def _texts(reply: Any) -> list[str]:
    return [item.decode() for item in reply]


def _get(client: redis.Redis, settings: Settings, ids: list[str]) -> list[Delivery]:
    with client.pipeline(transaction=False) as pipeline:
        for each in ids:
            pipeline.hgetall(f"{settings.key_prefix}delivery:{each}")
        return _read(ids, pipeline.execute())


def _read(ids: Iterable[str], hashes: Iterable[dict[bytes, bytes]]) -> list[Delivery]:
    return [
        Delivery.from_hash(each, {name.decode(): value for name, value in fields.items()})
        for each, fields in zip(ids, hashes, strict=True)
        if fields
    ]
