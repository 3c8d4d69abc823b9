"""One micro-batch, in a pool child: claim, prepare, one call to Triton, rank, write the outcomes.

Pure but for the ports it is given; it knows no Celery. A job's fate never depends on its neighbours': a broken
image, a refused input or a bad row ends that job alone.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from tidegate.commands import ClaimedJob, Command, Commands, Outcome, Return, Returned, Ticket
from tidegate.errors import (
    InferenceError,
    ModelNotAvailable,
    ModelRejectedInput,
    ModelUnreachable,
    RequestError,
    StoreUnavailable,
    TidegateError,
)
from tidegate.settings import Settings
from worker.contract import ModelContract
from worker.retry import TryAgain, decide
from worker.scores import Prediction, rank, split_rows

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class BatchCall:
    """What the main process asks a child to run.

    Attributes:
        batch_id: names the batch, and is the owner of its leases.
        fingerprint: of the model's contract as it was last reported, so that the child notices a change.
        alone: the one job is a suspect.
    """

    batch_id: str
    model: str
    job_ids: tuple[str, ...]
    fingerprint: str
    alone: bool


class Status(enum.StrEnum):
    """What became of a ticket."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"
    EXPIRED = "expired"
    RETRIED = "retried"
    """The job is back in the queue or put off."""
    SUSPECT = "suspect"
    """It must be claimed alone; the ticket is still good."""
    HELD = "held"
    """The model cannot run now, so nothing was claimed; the ticket is still good."""
    SKIPPED = "skipped"
    """There was nothing to do: it runs elsewhere, waits for its time, is unknown, or was over."""


@dataclass(frozen=True)
class JobReport:
    """What a child tells of one ticket.

    Attributes:
        detail: code of the error, or why it was skipped; empty otherwise.
    """

    job_id: str
    status: Status
    detail: str = ""


@dataclass(frozen=True)
class BatchReport:
    """What a child tells of a batch.

    Attributes:
        jobs: one report a ticket.
        outage: code of the error when the model as a whole cannot run now; empty when it can.
        tickets: to be issued by the main process, for jobs that are to be tried again at once.
    """

    jobs: tuple[JobReport, ...]
    outage: str = ""
    tickets: tuple[Ticket, ...] = ()


class Store(Protocol):
    """The ledger, as far as a batch needs it."""

    @property
    def commands(self) -> Commands:
        """The vocabulary."""
        ...

    def run(self, command: Command[T]) -> T:
        """Carry out one change; raises StoreUnavailable."""
        ...


class ModelServer(Protocol):
    """Triton, as far as a batch needs it."""

    def room(self, contract: ModelContract, count: int) -> NDArray[Any]:
        """Where to prepare images; valid until the next call."""
        ...

    def infer(self, contract: ModelContract, batch: NDArray[Any], version: str = "") -> tuple[NDArray[Any], str]:
        """Run one batch; raises an InferenceError."""
        ...


class Contracts(Protocol):
    """Where contracts come from."""

    def get(self, model: str, fingerprint: str) -> ModelContract:
        """The contract with its labels; raises an InferenceError or ModelContractError."""
        ...


#: Decodes an encoded image and writes it, preprocessed, into one row of the batch; raises a RequestError.
Prepare = Callable[[bytes, ModelContract, NDArray[Any]], None]


@dataclass(frozen=True)
class _Prepared:
    """Jobs whose images stand in the rows of one array, in that order."""

    jobs: list[ClaimedJob]
    rows: NDArray[Any]
    preprocess_ms: dict[str, float]


@dataclass
class _Answer:
    """What one call brought for one job: a row of scores and the version that gave it, or an error."""

    job: ClaimedJob
    row: NDArray[Any] | None = None
    version: str = ""
    error: InferenceError | None = None
    infer_ms: float = 0.0
    size: int = 0


class BatchRunner:
    """Runs batches on the ports it is given."""

    def __init__(
        self, *, store: Store, server: ModelServer, contracts: Contracts, prepare: Prepare, settings: Settings
    ) -> None:
        self._store = store
        self._server = server
        self._contracts = contracts
        self._prepare = prepare
        self._settings = settings

    def run(self, call: BatchCall) -> BatchReport:
        """Run a batch to the end. Every ticket is reported; nothing is raised but for a bug."""
        try:
            contract = self._contracts.get(call.model, call.fingerprint)
        except TidegateError as error:
            # Before the claim, so that an outage costs no job an attempt.
            held = tuple(JobReport(job_id, Status.HELD, error.code) for job_id in call.job_ids)
            return BatchReport(held, outage=error.code)
        try:
            claimed, refused = self._store.run(
                self._store.commands.claim(call.batch_id, call.job_ids, alone=call.alone)
            )
        except StoreUnavailable as error:
            return BatchReport(tuple(JobReport(job_id, Status.HELD, error.code) for job_id in call.job_ids))
        reports = [_refusal_report(refusal.id, refusal.reason) for refusal in refused]
        outcomes: list[Outcome] = []
        answers: list[_Answer] = []
        preprocess_ms: dict[str, float] = {}
        for version, jobs in _by_version(claimed):
            prepared = self._prepare_rows(call, contract, jobs, outcomes)
            preprocess_ms |= prepared.preprocess_ms
            if prepared.jobs:
                answers += self._infer(contract, version, prepared.jobs, prepared.rows)
        returns = self._judge(call, contract, answers, preprocess_ms, outcomes)
        tickets = self._write(call, outcomes, returns, reports)
        outages = {
            answer.error.code for answer in answers if isinstance(answer.error, ModelUnreachable | ModelNotAvailable)
        }
        return BatchReport(tuple(reports), outage=next(iter(outages), ""), tickets=tickets)

    def _prepare_rows(
        self, call: BatchCall, contract: ModelContract, jobs: Sequence[ClaimedJob], outcomes: list[Outcome]
    ) -> _Prepared:
        rows = self._server.room(contract, len(jobs))
        good: list[ClaimedJob] = []
        times: dict[str, float] = {}
        for job in jobs:
            started = time.monotonic()
            try:
                self._prepare(job.image, contract, rows[len(good), ...])
            except RequestError as error:
                outcomes.append(Outcome(job.id, None, error, {"batch_id": call.batch_id, "batch_size": len(jobs)}))
                continue
            times[job.id] = (time.monotonic() - started) * 1000
            good.append(job)
        return _Prepared(good, rows[: len(good)], times)

    def _infer(
        self, contract: ModelContract, version: str, jobs: Sequence[ClaimedJob], rows: NDArray[Any]
    ) -> list[_Answer]:
        """One call, within the contract's limit; a refused batch is halved until the culprit stands alone."""
        limit = min(contract.batch_limit, self._settings.batch_limit)
        if len(jobs) > limit:
            return self._infer(contract, version, jobs[:limit], rows[:limit]) + self._infer(
                contract, version, jobs[limit:], rows[limit:]
            )
        started = time.monotonic()
        try:
            output, answered = self._server.infer(contract, rows, version)
            scores = split_rows(output, expected=len(jobs), classes=contract.classes)
        except ModelRejectedInput as error:
            if len(jobs) == 1:
                return [_Answer(jobs[0], error=error, size=1)]
            middle = len(jobs) // 2
            return self._infer(contract, version, jobs[:middle], rows[:middle]) + self._infer(
                contract, version, jobs[middle:], rows[middle:]
            )
        except InferenceError as error:
            return [_Answer(job, error=error, size=len(jobs)) for job in jobs]
        infer_ms = (time.monotonic() - started) * 1000
        return [
            _Answer(job, row=row, version=answered, infer_ms=infer_ms, size=len(jobs))
            for job, row in zip(jobs, scores, strict=True)
        ]

    def _judge(
        self,
        call: BatchCall,
        contract: ModelContract,
        answers: Sequence[_Answer],
        preprocess_ms: dict[str, float],
        outcomes: list[Outcome],
    ) -> list[Return]:
        """Turn answers into outcomes; gives the jobs that are to be tried again."""
        returns: list[Return] = []
        for answer in answers:
            job = answer.job
            run = {
                "batch_id": call.batch_id,
                "batch_size": answer.size,
                "model_version": answer.version,
                "preprocess_ms": round(preprocess_ms[job.id], 3),
                "infer_ms": round(answer.infer_ms, 3),
            }
            error: TidegateError | None = answer.error
            if answer.row is not None:
                try:
                    result = _predictions(contract, job, answer.row)
                except InferenceError as unusable:
                    error = unusable
                else:
                    outcomes.append(Outcome(job.id, result, None, run))
                    continue
            if isinstance(error, InferenceError):
                decision = decide(
                    error,
                    attempts=job.attempts,
                    max_attempts=self._settings.max_attempts,
                    pauses=job.pauses,
                    remaining_ms=job.remaining_ms,
                )
                if isinstance(decision, TryAgain):
                    returns.append(Return(job.id, decision.delay_ms, refund=decision.refund, error=error))
                    continue
            outcomes.append(Outcome(job.id, None, error, run))
        return returns

    def _write(
        self, call: BatchCall, outcomes: list[Outcome], returns: list[Return], reports: list[JobReport]
    ) -> tuple[Ticket, ...]:
        """Write what came of the batch, and add a report a job."""
        tickets: tuple[Ticket, ...] = ()
        try:
            if outcomes:
                states = _insist(lambda: self._store.run(self._store.commands.complete(call.batch_id, outcomes)))
                reports += [_outcome_report(outcome, state) for outcome, state in zip(outcomes, states, strict=True)]
            if returns:
                given = _insist(lambda: self._store.run(self._store.commands.release(call.batch_id, returns)))
                reports += [_return_report(item, back) for item, back in zip(returns, given, strict=True)]
                tickets = tuple(back.ticket for back in given if back.ticket)
        except StoreUnavailable:
            # The leases lapse and the jobs run again; nothing is lost but this work.
            log.warning("batch.outcome_not_stored", batch_id=call.batch_id, jobs=len(outcomes) + len(returns))
            told = {report.job_id for report in reports}
            ids = [outcome.job_id for outcome in outcomes] + [item.job_id for item in returns]
            reports += [
                JobReport(job_id, Status.RETRIED, StoreUnavailable.code) for job_id in ids if job_id not in told
            ]
        return tickets


#: How often a finished batch is offered to a Redis that does not take it, and the pause between, in seconds.
WRITE_TRIES = 5
WRITE_PAUSE_SECONDS = 0.5


def _insist(write: Callable[[], T]) -> T:
    """Try a write again while Redis is away for a moment: the work of a whole batch hangs on it."""
    for _ in range(WRITE_TRIES - 1):
        try:
            return write()
        except StoreUnavailable:
            time.sleep(WRITE_PAUSE_SECONDS)
    return write()


def _by_version(jobs: Sequence[ClaimedJob]) -> Iterator[tuple[str, list[ClaimedJob]]]:
    """Jobs that ask for different versions of a model cannot share a call."""
    versions: dict[str, list[ClaimedJob]] = {}
    for job in jobs:
        versions.setdefault(job.version or "", []).append(job)
    yield from versions.items()


def _predictions(contract: ModelContract, job: ClaimedJob, row: NDArray[Any]) -> list[Prediction]:
    top_k = min(int(job.options.get("top_k", 5)), contract.classes)
    return rank(np.asarray(row), kind=contract.scores, top_k=top_k, labels=contract.labels)


_REFUSALS = {
    "canceled": Status.CANCELED,
    "expired": Status.EXPIRED,
    "suspect": Status.SUSPECT,
}


def _refusal_report(job_id: str, reason: str) -> JobReport:
    return JobReport(job_id, _REFUSALS.get(reason, Status.SKIPPED), reason)


def _outcome_report(outcome: Outcome, state: str) -> JobReport:
    detail = outcome.error.code if outcome.error else ""
    status = Status(state) if state in {"succeeded", "failed", "canceled", "expired"} else Status.SKIPPED
    return JobReport(outcome.job_id, status, detail)


def _return_report(item: Return, back: Returned) -> JobReport:
    status = _REFUSALS.get(back.state, Status.RETRIED)
    return JobReport(item.job_id, status, item.error.code if item.error else "")
