"""Which models there are: asked of Triton by one worker at a time, kept in the catalogue for everyone.

Runs in a pool child, since a gRPC channel must not live in the process that forks. The first worker to take the
lock asks Triton; the others read what it wrote. So a Triton that is down is probed at one rate, however many
workers wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, Protocol

import redis
import structlog
from redis.exceptions import RedisError

from tidegate.catalogue import ModelEntry, ModelState, read_catalogue, write_catalogue
from tidegate.errors import InferenceError, ModelContractError
from tidegate.settings import Settings
from tidegate.store import translate
from worker.contract import ModelContract
from worker.triton import RepositoryModel

log = structlog.get_logger(__name__)


class ModelRepository(Protocol):
    """Triton, as far as discovery needs it."""

    def repository(self) -> list[RepositoryModel]:
        """The repository index; raises an InferenceError."""
        ...

    def contract(self, model: str, version: str = "") -> ModelContract:
        """What a model promises; raises an InferenceError or ModelContractError."""
        ...


class WarmContracts(Protocol):
    """Where warmed-up contracts are kept."""

    def warm_up(self, contract: ModelContract) -> None:
        """Run the model once and learn its labels, unless that was done; raises like Triton's calls."""
        ...


class Discovery:
    """Brings the catalogue up to date, or reads it."""

    def __init__(
        self, client: redis.Redis, repository: ModelRepository, contracts: WarmContracts, settings: Settings
    ) -> None:
        self._client = client
        self._repository = repository
        self._contracts = contracts
        self._settings = settings

    def run(self) -> dict[str, ModelEntry]:
        """The catalogue as it now stands, by name.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        known = read_catalogue(self._client, self._settings)
        if not self._my_turn():
            return known
        entries = self._ask(known)
        for entry in entries.values():
            self._tell_change(known.get(entry.name), entry)
        write_catalogue(self._client, self._settings, entries.values())
        return entries

    def _my_turn(self) -> bool:
        # A little less than the period, so that a worker's next turn does not meet its own lock.
        hold_ms = round(self._settings.model_poll_seconds * 900)
        try:
            return bool(self._client.set(f"{self._settings.key_prefix}probe", "1", nx=True, px=hold_ms))
        except RedisError as error:
            raise translate(error) from error

    def _ask(self, known: Mapping[str, ModelEntry]) -> dict[str, ModelEntry]:
        try:
            index = self._repository.repository()
        except InferenceError as error:
            return {name: _unavailable(entry, str(error)) for name, entry in known.items()}
        entries = {name: self._entry(name, rows, known.get(name)) for name, rows in _by_name(index)}
        for name in known.keys() - entries.keys():
            entries[name] = _unavailable(known[name], "It is no longer in Triton's repository.")
        return entries

    def _entry(self, name: str, rows: list[RepositoryModel], before: ModelEntry | None) -> ModelEntry:
        if not any(row.ready for row in rows):
            reason = next((row.reason for row in rows if row.reason), "") or "Triton has not loaded it."
            return _unavailable(before or ModelEntry(name=name, state=ModelState.UNAVAILABLE), reason)
        try:
            contract = self._repository.contract(name)
            self._contracts.warm_up(contract)
        except ModelContractError as error:
            return ModelEntry(name=name, state=ModelState.BROKEN, reason=str(error))
        except InferenceError as error:
            return _unavailable(before or ModelEntry(name=name, state=ModelState.UNAVAILABLE), str(error))
        return ModelEntry(
            name=name,
            state=ModelState.READY,
            versions=tuple(sorted((row.version for row in rows if row.ready), key=_version_order)),
            classes=contract.classes,
            batch_limit=min(contract.batch_limit, self._settings.batch_limit),
            input=contract.describe_input(),
            fingerprint=contract.fingerprint,
        )

    @staticmethod
    def _tell_change(before: ModelEntry | None, after: ModelEntry) -> None:
        if before is None or (before.state, before.fingerprint) != (after.state, after.fingerprint):
            tell = log.info if after.ready else log.warning
            tell("model.state", model=after.name, state=after.state.value, reason=after.reason)


def _unavailable(entry: ModelEntry, reason: str) -> ModelEntry:
    return entry.model_copy(update={"state": ModelState.UNAVAILABLE, "reason": reason})


def _by_name(index: Iterable[RepositoryModel]) -> Iterable[tuple[str, list[RepositoryModel]]]:
    ordered = sorted(index, key=lambda row: row.name)
    return [(name, list(rows)) for name, rows in groupby(ordered, key=lambda row: row.name)]


def _version_order(version: str) -> tuple[int, Any]:
    return (0, int(version)) if version.isdigit() else (1, version)
