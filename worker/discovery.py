"""Which models there are: asked of Triton by one worker at a time, kept in the catalogue for everyone.

Runs in a pool child, since a gRPC channel must not live in the process that forks. Whoever finds that nobody has
reached Triton lately asks it; the others read what came of that. Questions are spaced, those of all workers together,
so a Triton that is down sees the same few a second however many workers wait for it.

A worker that cannot reach Triton while others do has lost its own way, and leaves the catalogue alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
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
from worker.limits import CallLimits
from worker.triton import RepositoryModel

log = structlog.get_logger(__name__)


#: Least time between two questions, all workers together: under three a second.
SPACING_MS = 400
#: After so many periods in which nobody reached Triton its models are unavailable, and not only out of one's reach.
PERIODS_UNSEEN = 3


@dataclass(frozen=True)
class Look:
    """What a worker knows after it looked.

    Attributes:
        catalogue: as it now stands, by name.
        reached: whether this worker itself reached Triton; None when it did not try.
    """

    catalogue: Mapping[str, ModelEntry]
    reached: bool | None = None


class ModelRepository(Protocol):
    """Triton, as far as discovery needs it."""

    def repository(self) -> list[RepositoryModel]:
        """The repository index; raises an InferenceError."""
        ...

    def contract(self, model: str) -> ModelContract:
        """What a model promises; raises an InferenceError or ModelContractError."""
        ...


class WarmContracts(Protocol):
    """Where warmed-up contracts are kept."""

    def warm_up(self, contract: ModelContract) -> ModelContract:
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
        self._limits = CallLimits.of(settings)

    def run(self, *, sure: bool = False) -> Look:
        """Look at the catalogue, and at Triton where that is due.

        Args:
            sure: ask Triton, even if others have: this worker must know about its own way there.

        Raises:
            StoreUnavailable: Redis does not answer.
        """
        known = read_catalogue(self._client, self._settings)
        try:
            return self._ask(known) if self._may_ask(sure=sure) else Look(known)
        except RedisError as error:
            raise translate(error) from error

    def _may_ask(self, *, sure: bool) -> bool:
        # The key lives for some periods; so long as most of that is left, somebody asked in this one.
        left_ms: Any = self._client.pttl(self._seen_key)
        if not sure and left_ms > self._period_ms * (PERIODS_UNSEEN - 0.9):
            return False
        return bool(self._client.set(f"{self._settings.key_prefix}probe", "1", nx=True, px=SPACING_MS))

    @property
    def _seen_key(self) -> str:
        return f"{self._settings.key_prefix}seen"

    @property
    def _period_ms(self) -> int:
        return round(self._settings.model_poll_seconds * 1000)

    def _ask(self, known: Mapping[str, ModelEntry]) -> Look:
        try:
            index = self._repository.repository()
        except InferenceError as error:
            if self._client.exists(self._seen_key):
                log.warning("triton.out_of_reach", reason=str(error))
                return Look(known, reached=False)
            return Look(
                self._write(known, {name: _unavailable(entry, str(error)) for name, entry in known.items()}),
                reached=False,
            )
        self._client.set(self._seen_key, "1", px=self._period_ms * PERIODS_UNSEEN)
        return Look(self._write(known, self._judge(index, known)), reached=True)

    def _write(self, known: Mapping[str, ModelEntry], entries: dict[str, ModelEntry]) -> dict[str, ModelEntry]:
        for entry in entries.values():
            self._tell_change(known.get(entry.name), entry)
        write_catalogue(self._client, self._settings, entries.values())
        return entries

    def _judge(self, index: Iterable[RepositoryModel], known: Mapping[str, ModelEntry]) -> dict[str, ModelEntry]:
        entries = {name: self._entry(name, rows, known.get(name)) for name, rows in _by_name(index)}
        for name in known.keys() - entries.keys():
            entries[name] = _unavailable(known[name], "It is no longer in Triton's repository.")
        for name in self._settings.models.keys() - entries.keys():
            entries[name] = _unavailable(_unknown(name), "TIDEGATE_MODELS names it, and the server has none such.")
        return entries

    def _entry(self, name: str, rows: list[RepositoryModel], before: ModelEntry | None) -> ModelEntry:
        if not any(row.ready for row in rows):
            reason = next((row.reason for row in rows if row.reason), "") or "Triton has not loaded it."
            return _unavailable(before or _unknown(name), reason)
        try:
            contract = self._contracts.warm_up(self._repository.contract(name))
        except ModelContractError as error:
            return _broken(name, str(error))
        except InferenceError as error:
            # What the model itself refuses or answers wrongly, it will again.
            return _unavailable(before or _unknown(name), str(error)) if error.retryable else _broken(name, str(error))
        except Exception as error:
            # A model that is odd in a way nobody has foreseen must not keep the others from their jobs.
            log.exception("model.unreadable", model=name)
            return _broken(name, f"Reading it failed with {type(error).__name__}.")
        return ModelEntry(
            name=name,
            state=ModelState.READY,
            notice=_notice(contract),
            versions=tuple(sorted((row.version for row in rows if row.ready and row.version), key=_version_order)),
            classes=contract.classes,
            batch_limit=self._limits.images_of(contract),
            input=contract.describe_input(),
            fingerprint=contract.fingerprint,
        )

    @staticmethod
    def _tell_change(before: ModelEntry | None, after: ModelEntry) -> None:
        if before is None or (before.state, before.fingerprint) != (after.state, after.fingerprint):
            tell = log.info if after.ready else log.warning
            tell("model.state", model=after.name, state=after.state.value, reason=after.reason, notice=after.notice)


def _unknown(name: str) -> ModelEntry:
    return ModelEntry(name=name, state=ModelState.UNAVAILABLE)


def _broken(name: str, reason: str) -> ModelEntry:
    return ModelEntry(name=name, state=ModelState.BROKEN, reason=reason)


def _notice(contract: ModelContract) -> str | None:
    if contract.labels is not None or contract.label_file is None:
        return None
    return (
        f"Its classes have no names: Triton does not tell those in {contract.label_file} for an output of "
        f"{contract.output_datatype}. TIDEGATE_MODELS can name them."
    )


def _unavailable(entry: ModelEntry, reason: str) -> ModelEntry:
    return entry.model_copy(update={"state": ModelState.UNAVAILABLE, "reason": reason, "notice": None})


def _by_name(index: Iterable[RepositoryModel]) -> Iterable[tuple[str, list[RepositoryModel]]]:
    ordered = sorted(index, key=lambda row: row.name)
    return [(name, list(rows)) for name, rows in groupby(ordered, key=lambda row: row.name)]


def _version_order(version: str) -> tuple[int, Any]:
    return (0, int(version)) if version.isdigit() else (1, version)
