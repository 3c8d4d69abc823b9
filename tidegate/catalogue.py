"""The catalogue: which models there are, as the workers found them in Triton.

Workers write it to Redis; the API reads it from there and so never needs Triton. One hash, a JSON document a
model. An entry outlives its model's absence from Triton, because its jobs may wait for the model's return.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import redis
import redis.asyncio
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from redis.exceptions import RedisError

from tidegate.settings import Settings
from tidegate.store import translate


class ModelState(enum.StrEnum):
    """How a model stands with the workers."""

    READY = "ready"
    """Triton serves it and it keeps the contract."""
    UNAVAILABLE = "unavailable"
    """It is known, but Triton does not serve it at present; its jobs wait."""
    BROKEN = "broken"
    """Triton serves it, but it is no classifier that Tidegate can serve."""


class ModelEntry(BaseModel):
    """What the API and the workers' main processes must know of one model.

    Attributes:
        name: as in the model repository.
        state: see :class:`ModelState`.
        reason: why it is not ready, in one sentence; None when it is.
        notice: what its answers lack though it is ready, in one sentence; None when nothing.
        versions: the versions that Triton serves, oldest first.
        classes: how many classes it tells apart; 0 where it was never ready.
        batch_limit: most images in one call; 0 where it was never ready.
        input: the input tensor in words, such as ``UINT8 [224, 224, 3] NHWC``.
        fingerprint: changes when the model's configuration does.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    state: ModelState
    reason: str | None = None
    notice: str | None = None
    versions: tuple[str, ...] = ()
    classes: Annotated[int, Field(ge=0)] = 0
    batch_limit: Annotated[int, Field(ge=0)] = 0
    input: str = ""
    fingerprint: str = ""

    @property
    def ready(self) -> bool:
        """Whether its jobs can run now."""
        return self.state is ModelState.READY

    @property
    def served_before(self) -> bool:
        """Whether it ever kept the contract, so that its jobs can be checked and may wait for it."""
        return self.classes > 0


def catalogue_key(settings: Settings) -> str:
    """The hash that holds the catalogue."""
    return f"{settings.key_prefix}catalogue"


def _parse(documents: Mapping[Any, Any]) -> dict[str, ModelEntry]:
    entries = [entry for document in documents.values() if (entry := _parse_entry(document))]
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: entry.name)}


def _parse_entry(document: bytes) -> ModelEntry | None:
    """One entry, or None when it is of a kind that only another release of ours knows, during an update."""
    try:
        return ModelEntry.model_validate_json(document)
    except ValidationError:
        return None


def read_catalogue(client: redis.Redis, settings: Settings) -> dict[str, ModelEntry]:
    """The models by name; empty when no worker has reported any so far.

    Raises:
        StoreUnavailable: Redis does not answer.
    """
    try:
        documents: Any = client.hgetall(catalogue_key(settings))
    except RedisError as error:
        raise translate(error) from error
    return _parse(documents)


async def read_catalogue_async(client: redis.asyncio.Redis, settings: Settings) -> dict[str, ModelEntry]:
    """The same for the API."""
    try:
        documents: Any = await client.hgetall(catalogue_key(settings))
    except RedisError as error:
        raise translate(error) from error
    return _parse(documents)


def write_catalogue(client: redis.Redis, settings: Settings, entries: Iterable[ModelEntry]) -> None:
    """Put these entries in the place of those of the same names.

    Raises:
        StoreUnavailable: Redis does not answer or refuses writes.
    """
    documents: Any = {entry.name: entry.model_dump_json() for entry in entries}
    if not documents:
        return
    try:
        client.hset(catalogue_key(settings), mapping=documents)
    except RedisError as error:
        raise translate(error) from error
