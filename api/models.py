"""The models, as the API knows them: the catalogue that workers keep in Redis, read again every second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import redis.asyncio

from tidegate.catalogue import ModelEntry, read_catalogue_async
from tidegate.errors import InvalidField, ModelNotFound, NoModelsYet
from tidegate.settings import Settings

#: How old the catalogue may be; a model that comes up or goes is told no later.
MAX_AGE_SECONDS = 1.0
#: When to come back while no worker has reported a model; a worker does so in its first seconds.
NO_MODELS_RETRY_SECONDS = 5


class KnownModels:
    """The catalogue with a short memory; one reader at a time, however many ask."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._entries: Mapping[str, ModelEntry] = {}
        self._read_at = -MAX_AGE_SECONDS
        self._lock = asyncio.Lock()

    async def all(self) -> Mapping[str, ModelEntry]:
        """The models by name; empty while no worker has reported any.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        async with self._lock:
            if time.monotonic() - self._read_at >= MAX_AGE_SECONDS:
                self._entries = await read_catalogue_async(self._client, self._settings)
                self._read_at = time.monotonic()
            return self._entries

    async def named(self, name: str) -> ModelEntry:
        """One model, whatever its state.

        Raises:
            NoModelsYet: no worker has reported a model so far.
            ModelNotFound: there is none of that name.
            StoreUnavailable: Redis does not answer.
        """
        entries = await self._reported()
        if name not in entries:
            raise ModelNotFound("No model of that name is served here; GET /v1/models lists those that are.")
        return entries[name]

    async def for_jobs(self, name: str | None) -> ModelEntry:
        """The model that a submission means: one whose jobs can be checked, and run now or once it is back.

        Args:
            name: as the client gave it; None for the default.

        Raises:
            InvalidField: no name was given, and there is no telling which is meant.
            NoModelsYet, ModelNotFound, StoreUnavailable: as for :meth:`named`, or the model was never ready.
        """
        entry = await self.named(name or self._settings.default_model or await self._only_one())
        if not entry.served_before:
            reason = f": {entry.reason}" if entry.reason else "."
            raise ModelNotFound(f"The model {entry.name} cannot be served{reason}")
        return entry

    async def _only_one(self) -> str:
        entries = await self._reported()
        names = [entry.name for entry in entries.values() if entry.served_before] or list(entries)
        if len(names) > 1:
            problem = ("#/model", "There are several models and no default: name one of those in GET /v1/models.")
            raise InvalidField("The model must be named.", problems=(problem,))
        return names[0]

    async def _reported(self) -> Mapping[str, ModelEntry]:
        entries = await self.all()
        if not entries:
            raise NoModelsYet("No worker has reported a model yet.", retry_after_seconds=NO_MODELS_RETRY_SECONDS)
        return entries
