"""One micro-batch, in a pool child: claim, prepare, one call to Triton, rank, write the outcomes.

A job is one row of a call, or one for each region that it asks about: then a batch may take several calls.

Pure but for the ports it is given; it knows no Celery. A job's fate never depends on its neighbours': a broken
image, a refused input or a bad row ends that job alone.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import structlog
from numpy.typing import NDArray

from tidegate.commands import ClaimedJob, Command, Commands, Outcome, Return, Returned, Ticket
from tidegate.errors import (
    ImageLost,
    InferenceError,
    ModelNotAvailable,
    ModelOutputInvalid,
    ModelUnreachable,
    RequestError,
    StoreUnavailable,
    TidegateError,
)
from tidegate.jobs import NewJob
from tidegate.regions import Box
from tidegate.settings import Settings
from worker.calls import Answer, ModelCalls, ModelServer, gather
from worker.contract import ModelContract
from worker.insist import insist
from worker.limits import CallLimits
from worker.retry import TryAgain, decide
from worker.scores import Prediction, rank

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
    """The model or the store cannot be asked now, so nothing was claimed."""
    SKIPPED = "skipped"
    """There was nothing to do: it runs elsewhere, waits for its time, is unknown, or was over."""


class JobReport(NamedTuple):
    """What a child tells of one ticket. A tuple, because many go through a pipe.

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


class Contracts(Protocol):
    """Where contracts come from."""

    def get(self, model: str, fingerprint: str) -> ModelContract:
        """The contract with its labels; raises an InferenceError or ModelContractError."""
        ...


class Prepare(Protocol):
    """What makes rows of the batch out of encoded images."""

    def __call__(
        self, image: bytes, contract: ModelContract, rows: NDArray[Any], regions: Sequence[Box] | None
    ) -> None:
        """Write an image into the first of ``rows``, or each of its regions into one; raises a RequestError."""
        ...


#: For each row of a job its predictions, or None where they are no numbers.
_Ranked: TypeAlias = list[list[Prediction] | None]


class _Portion(NamedTuple):
    """A job's part of a load: which rows are its own."""

    job: ClaimedJob
    rows: slice
    preprocess_ms: float


#: After so many seconds a batch begins no more calls, and gives the jobs back that have not had theirs. A job with
#: many regions is many images, and tickets do not tell how many; the pool kills a batch that takes too long.
BEGIN_WITHIN_SECONDS = 20.0


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
        self._limits = CallLimits.of(settings)
        self._calls = ModelCalls(server, self._limits)

    def run(self, call: BatchCall) -> BatchReport:
        """Run a batch to the end. Every ticket is reported; nothing is raised but for a bug."""
        begin_until = time.monotonic() + BEGIN_WITHIN_SECONDS
        try:
            contract = self._contracts.get(call.model, call.fingerprint)
        except TidegateError as error:
            return self._hold(call, error)
        try:
            claimed, refused = self._store.run(
                self._store.commands.claim(call.batch_id, call.job_ids, alone=call.alone)
            )
        except StoreUnavailable as error:
            return BatchReport(tuple(JobReport(job_id, Status.HELD, error.code) for job_id in call.job_ids))
        reports = [_refusal_report(refusal.id, refusal.reason) for refusal in refused]
        tickets: tuple[Ticket, ...] = ()
        outages: list[str] = []
        for version, jobs in _loads(claimed, self._limits.images_of(contract)):
            if time.monotonic() < begin_until:
                ends = self._run_load(call, contract, version, jobs)
            else:
                ends = [Return(job.id, refund=True) for job in jobs]
            tickets += self._write(call, ends, reports)
            outages += [end.error.code for end in ends if end.error is not None and _tells_outage(end.error, version)]
        return BatchReport(tuple(reports), outage=next(iter(outages), ""), tickets=tickets)

    def _hold(self, call: BatchCall, outage: TidegateError) -> BatchReport:
        """Leave jobs as they are, before any is claimed, so that an outage costs none an attempt.

        Their tickets were used up all the same; with new ones they run as soon as the model is back.
        """
        held = tuple(JobReport(job_id, Status.HELD, outage.code) for job_id in call.job_ids)
        try:
            tickets = self._store.run(self._store.commands.reissue(call.job_ids))
        except StoreUnavailable:
            tickets = []
        return BatchReport(held, outage=outage.code, tickets=tuple(tickets))

    def _run_load(
        self, call: BatchCall, contract: ModelContract, version: str, jobs: Sequence[ClaimedJob]
    ) -> list[Outcome | Return]:
        """Prepare jobs, have them answered, and say what becomes of each."""
        rows = self._server.room(contract, sum(map(_row_count, jobs)))
        portions, ends = self._prepare_rows(call, contract, jobs, rows)
        filled = rows[: portions[-1].rows.stop if portions else 0]
        rows_answers = self._calls.ask(contract, filled, version)
        answers = []
        for portion in portions:
            answer = gather(rows_answers[portion.rows])
            if answer.mixed:
                # The model was exchanged between two calls: one version has to answer for the whole job.
                answer = gather(self._calls.ask(contract, filled[portion.rows], answer.version))
            answers.append(answer)
        ranked = _rank(contract, [portion.job for portion in portions], answers)
        return ends + list(map(partial(self._judge, call), portions, answers, ranked))

    def _prepare_rows(
        self, call: BatchCall, contract: ModelContract, jobs: Sequence[ClaimedJob], rows: NDArray[Any]
    ) -> tuple[list[_Portion], list[Outcome | Return]]:
        """Fill rows from the first on, without gaps; a job whose image is no good has none and ends here."""
        portions: list[_Portion] = []
        ends: list[Outcome | Return] = []
        start = 0
        for job in jobs:
            began = time.monotonic()
            own = slice(start, start + _row_count(job))
            try:
                self._prepare(_image_of(job), contract, rows[own], job.regions)
            except (RequestError, ImageLost) as error:
                ends.append(Outcome(job.id, None, error, {"batch_id": call.batch_id, "batch_size": len(jobs)}))
                continue
            portions.append(_Portion(job, own, (time.monotonic() - began) * 1000))
            start = own.stop
        return portions, ends

    def _judge(self, call: BatchCall, portion: _Portion, answer: Answer, ranked: _Ranked) -> Outcome | Return:
        """What becomes of a job: an end, or another try."""
        job = portion.job
        run = {
            "batch_id": call.batch_id,
            "batch_size": answer.images,
            "model_version": answer.version,
            "preprocess_ms": round(portion.preprocess_ms, 3),
            "infer_ms": round(answer.infer_ms, 3),
        }
        error = answer.error
        if error is None:
            try:
                return Outcome(job.id, _result(job, ranked), None, run)
            except InferenceError as unusable:
                error = unusable
        decision = decide(
            error,
            attempts=job.attempts,
            max_attempts=self._settings.max_attempts,
            pauses=job.pauses,
            remaining_ms=job.remaining_ms,
            version_wait_ms=self._version_wait_ms(job),
            in_company=answer.images > _row_count(job),
        )
        if isinstance(decision, TryAgain):
            return Return(job.id, decision.delay_ms, refund=decision.refund, error=error, suspect=decision.alone)
        return Outcome(job.id, None, error, run)

    def _version_wait_ms(self, job: ClaimedJob) -> int | None:
        """How much longer the version that a job names may stay away; None where it names none."""
        return round(self._settings.version_wait_seconds * 1000) - job.absent_ms if job.version else None

    def _write(self, call: BatchCall, ends: Sequence[Outcome | Return], reports: list[JobReport]) -> tuple[Ticket, ...]:
        """Write what became of jobs, and add a report for each."""
        outcomes = [end for end in ends if isinstance(end, Outcome)]
        returns = [end for end in ends if isinstance(end, Return)]
        tickets: tuple[Ticket, ...] = ()
        try:
            if outcomes:
                states = insist(lambda: self._store.run(self._store.commands.complete(call.batch_id, outcomes)))
                reports += [_outcome_report(outcome, state) for outcome, state in zip(outcomes, states, strict=True)]
            if returns:
                given = insist(lambda: self._store.run(self._store.commands.release(call.batch_id, returns)))
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


def _loads(jobs: Sequence[ClaimedJob], capacity: int) -> Iterator[tuple[str, list[ClaimedJob]]]:
    """Jobs that are prepared together: for one version, in as many rows as a call takes, or one job of more."""
    for version, same in _by_version(jobs):
        load: list[ClaimedJob] = []
        rows = 0
        for job in same:
            if load and rows + _row_count(job) > capacity:
                yield version, load
                load, rows = [], 0
            load.append(job)
            rows += _row_count(job)
        yield version, load


def _by_version(jobs: Sequence[ClaimedJob]) -> Iterator[tuple[str, list[ClaimedJob]]]:
    """Jobs that ask for different versions of a model cannot share a call."""
    versions: dict[str, list[ClaimedJob]] = {}
    for job in jobs:
        versions.setdefault(job.version or "", []).append(job)
    yield from versions.items()


def _tells_outage(error: TidegateError, version: str) -> bool:
    """Whether the model as a whole cannot run now; that a version is missing which a job names tells nothing."""
    return isinstance(error, ModelUnreachable) or (isinstance(error, ModelNotAvailable) and not version)


def _image_of(job: ClaimedJob) -> bytes:
    """Raises ImageLost when there is none; where the job has ended since, the ledger drops that."""
    if job.image is None:
        raise ImageLost("The image of this job is gone from the store.")
    return job.image


def _row_count(job: ClaimedJob) -> int:
    return len(job.regions or (None,))


def _rank(contract: ModelContract, jobs: Sequence[ClaimedJob], answers: Sequence[Answer]) -> list[_Ranked]:
    """What the scores of all jobs say, job by job; nothing for a job without scores."""
    scores = [row for answer in answers for row in answer.scores]
    if not scores:
        return [[] for _ in jobs]
    wanted = [
        int(job.options.get("top_k", NewJob.top_k))
        for job, answer in zip(jobs, answers, strict=True)
        for _ in answer.scores
    ]
    rows = iter(rank(np.stack(scores), kind=contract.scores, top_k=wanted, labels=contract.labels))
    return [list(islice(rows, len(answer.scores))) for answer in answers]


def _result(job: ClaimedJob, ranked: _Ranked) -> list[Any]:
    """The predictions of a job or, where regions were asked for, those of each; raises an InferenceError."""
    rows = [predictions for predictions in ranked if predictions is not None]
    if len(rows) < len(ranked):
        raise ModelOutputInvalid("The model gave a score that is NaN or infinite")
    if job.regions is None:
        return rows[0]
    return [{"box": box, "predictions": predictions} for box, predictions in zip(job.regions, rows, strict=True)]


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
