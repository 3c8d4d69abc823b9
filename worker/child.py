"""What one pool child holds: its Redis client, its Triton channel and what it knows of the models.

Made on first use, after the fork, and closed when the child ends. The functions at the bottom are what the
main process asks children to run; they are sent by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import structlog
from celery.signals import worker_process_shutdown

from tidegate.declarations import ModelDeclaration
from tidegate.errors import StoreUnavailable
from tidegate.ledger import Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from worker.batch import BatchCall, BatchReport, BatchRunner, Prepare
from worker.contract import ModelContract
from worker.discovery import Discovery, Look
from worker.labels import with_labels
from worker.rows import RowMaker, sample_batch
from worker.triton import Triton

log = structlog.get_logger(__name__)


class ContractCache:
    """The contracts of the models this child has met, with their labels."""

    def __init__(self, triton: Triton, declared: Mapping[str, ModelDeclaration]) -> None:
        self._triton = triton
        self._declared = declared
        self._contracts: dict[str, ModelContract] = {}

    def get(self, model: str, fingerprint: str) -> ModelContract:
        """The contract with its labels, read afresh when its fingerprint is another.

        Raises:
            InferenceError: Triton did not answer, or does not have the model ready.
            ModelContractError: it is no classifier that Tidegate can serve.
        """
        contract = self._contracts.get(model)
        if contract is None or (fingerprint and contract.fingerprint != fingerprint):
            return self.warm_up(self._triton.contract(model))
        return contract

    def warm_up(self, contract: ModelContract) -> ModelContract:
        """Run the model once and learn its labels, unless that was done for this very contract; gives it with them."""
        known = self._contracts.get(contract.name)
        if known is not None and known.fingerprint == contract.fingerprint:
            return known
        told = self._triton.labels(contract, sample_batch(contract))
        labelled = with_labels(contract, told, self._declared.get(contract.name))
        self._contracts[contract.name] = labelled
        return labelled


class Child:
    """One pool child's clients, and what it can be asked to do."""

    def __init__(self, settings: Settings) -> None:
        self.pid = os.getpid()
        self._redis = connect(settings, max_connections=2)
        self._triton = self.make_server(settings)
        contracts = ContractCache(self._triton, settings.models)
        self._discovery = Discovery(self._redis, self._triton, contracts, settings)
        self._runner = BatchRunner(
            store=Ledger(self._redis, settings),
            server=self._triton,
            contracts=contracts,
            prepare=self.make_prepare(settings),
            settings=settings,
        )

    def make_server(self, settings: Settings) -> Triton:
        """The model server that this child calls."""
        return Triton(settings)

    def make_prepare(self, settings: Settings) -> Prepare:
        """What turns an encoded image into a row of the batch."""
        return RowMaker(settings).fill

    def run_batch(self, call: BatchCall) -> BatchReport:
        """Run one batch to the end."""
        with structlog.contextvars.bound_contextvars(batch_id=call.batch_id, model=call.model):
            return self._runner.run(call)

    def discover(self, *, sure: bool = False) -> Look:
        """Ask Triton, or the catalogue, which models there are; Triton for sure when told to."""
        return self._discovery.run(sure=sure)

    def close(self) -> None:
        """Close both connections."""
        self._triton.close()
        self._redis.close()


_child: Child | None = None
_make_child: Callable[[Settings], Child] = Child


def make_children_with(factory: Callable[[Settings], Child]) -> None:
    """Have children made by another factory, before they are forked: how a benchmark puts in other ports."""
    global _make_child  # noqa: PLW0603  # like the child itself, one a process
    _make_child = factory


def current() -> Child:
    """This process's child state; made anew when the process has forked since."""
    global _child  # noqa: PLW0603  # one a process, and the process is what it belongs to
    if _child is None or _child.pid != os.getpid():
        _child = _make_child(load_settings())
        worker_process_shutdown.connect(_close)
    return _child


def _close(**_signal: Any) -> None:
    if _child is not None and _child.pid == os.getpid():
        _child.close()


def run_batch(call: BatchCall) -> BatchReport:
    """What the pool sends to a child for each batch."""
    return current().run_batch(call)


def discover() -> Look | None:
    """What the pool sends to a child now and then; None when Redis does not answer, so nothing is known."""
    return _look(sure=False)


def discover_for_sure() -> Look | None:
    """What it sends while this worker doubts its own way to Triton."""
    return _look(sure=True)


def _look(*, sure: bool) -> Look | None:
    try:
        return current().discover(sure=sure)
    except StoreUnavailable as error:
        log.warning("discovery.no_store", error=error.code)
        return None
