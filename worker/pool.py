"""MicroBatchPool: Celery's prefork pool, which runs many classify requests as one call in one child.

Celery's default strategy and request class are used as they are. Where they hand a request to the pool, the
requests of the classify task go to a buffer; a batch is one pool call, and its outcome is handed to each
request's own Celery callbacks, so that events, states and counters come from Celery itself. Every other task
passes through untouched.

Runs in the worker's main process, on Celery's event loop: nothing here may wait longer than one answer of Redis.
How a worker ends is ``worker/drain.py``.
"""

from __future__ import annotations

import gc
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import structlog
from celery.concurrency.prefork import TaskPool
from celery.platforms import EX_FAILURE
from celery.worker import state as worker_state

from tidegate.catalogue import ModelEntry
from tidegate.errors import InternalError, WorkerLost
from tidegate.ledger import Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.tickets import CLASSIFY_TASK, TicketOffice
from worker.batch import BatchCall, BatchReport, JobReport, Status
from worker.buffer import Batch, TicketBuffer
from worker.child import run_batch
from worker.children import PROCESS_ENDED, Children, cause_of, death_limit
from worker.drain import Drain
from worker.leases import Leases
from worker.request import HeldRequest

log = structlog.get_logger(__name__)

#: How often the pool looks for dead children beside being told by their sentinels, in seconds.
MAINTAIN_SECONDS = 0.5
#: What a batch may take beyond its call to Triton (claiming, decoding, writing) before its child is killed.
BATCH_SLACK_SECONDS = 60.0


@dataclass(eq=False)
class RunningBatch:
    """A batch that a child works on, or is about to.

    Attributes:
        token: of the call, see :class:`worker.children.Children`.
        accepted: the child has begun.
        pid: of the child, once it has begun.
        given_back: its jobs were given back while it ran, because the worker had to end.
    """

    call: BatchCall
    entries: dict[str, HeldRequest]
    token: Any = None
    pid: int = 0
    accepted: bool = False
    given_back: bool = False
    started: float = field(default_factory=time.monotonic)


@dataclass(eq=False)
class RunningChore:
    """Something else that a child was asked to do, and what to do with what comes of it."""

    chore: Callable[[], Any]
    then: Callable[[Any], None]
    token: Any = None


class MicroBatchPool(TaskPool):  # type: ignore[misc]  # celery is untyped
    """The pool that ``worker_pool`` names in ``worker/app.py``."""

    #: Celery would hold requests back to one a child.
    uses_semaphore = False

    def on_start(self) -> None:
        """Start the children; what needs Redis is connected on first use."""
        self._settings: Settings = load_settings()
        self._ledger = Ledger(connect(self._settings), self._settings)
        self._office = TicketOffice(self._ledger.client)
        self._buffer: TicketBuffer[HeldRequest] = TicketBuffer(linger_seconds=self._settings.batch_linger_ms / 1000)
        self._running: dict[str, RunningBatch] = {}
        self._running_jobs: set[str] = set()
        self._ended: deque[tuple[RunningBatch, BatchReport]] = deque()
        self._chores: deque[RunningChore] = deque()
        self._running_chores: set[RunningChore] = set()
        self._catalogue: Mapping[str, ModelEntry] = {}
        self._on_outage: Callable[[str], None] = lambda _model: None
        self._take_no_more: Callable[[], None] = lambda: None
        self._hub: Any = None
        self._dispatch_is_due = False
        self._drain = Drain(self._settings.drain_seconds, give_up=self._give_back_running)
        self._leases = Leases(self._ledger, self._office)
        self.options["max_restarts"] = death_limit(self.limit)
        # What is there by now stays, and need not be looked through again and again.
        gc.collect()
        gc.freeze()
        super().on_start()
        self._children = Children(self._pool)
        self.on_apply = self._apply
        self.flush = self._flush
        self.terminate_job = self._terminate_job

    def register_with_event_loop(self, loop: Any) -> None:
        """Called at each (re)connection to the broker, with the timers of the last one cancelled."""
        super().register_with_event_loop(loop)
        self._hub = loop
        self._dispatch_is_due = False
        # At once, before anybody sweeps: while Redis was away nobody could renew them.
        self._renew_leases()
        loop.call_repeatedly(self._settings.lease_seconds / 3, self._renew_leases)
        loop.call_repeatedly(MAINTAIN_SECONDS, self._maintain)
        self._schedule_dispatch()

    # -- what Celery calls ------------------------------------------------------------------------------------

    def _apply(self, target: Any, args: Any = (), kwargs: Any = None, **options: Any) -> Any:
        """A request, of whichever task; the options hold its callbacks."""
        if not (args and args[0] == CLASSIFY_TASK):
            return self._pool.apply_async(target, args, kwargs, **options)
        held = HeldRequest.from_options(job_id=args[1], options=options)
        if self._drain.begun:
            held.given_back()
        elif held.job_id in self._running_jobs or not self._buffer.add(held.model, held, now_seconds=time.monotonic()):
            held.skipped()
        self._schedule_dispatch()
        return held

    def _flush(self) -> None:
        """The broker connection is lost, which is no reason to stop: what a child has goes on, and is heard of later.

        What no child has yet goes back into the buffer. Chores that wait are asked for again by whoever wants them.
        """
        self._tell_ended()
        calls: list[RunningBatch | RunningChore] = [*self._running.values(), *self._running_chores]
        self._children.flush(call.token for call in calls)
        for batch in [batch for batch in self._running.values() if not self._children.is_known(batch.token)]:
            self._forget(batch)
            self._buffer.put_back(batch.call.model, batch.entries.values(), alone=batch.call.alone)
        self._chores.clear()
        self._running_chores = {chore for chore in self._running_chores if self._children.is_known(chore.token)}

    def _terminate_job(self, pid: int, signal: Any = None) -> None:
        """A running job is revoked with terminate: its child runs its neighbours too, and is left alone.

        The revocation ends the job in the ledger, which drops the answer.
        """
        if not any(batch.pid == pid for batch in self._running.values()):
            self._children.terminate_job(pid, signal)

    def on_close(self) -> None:
        """A warm shutdown begins: nothing new is begun, and what waits here goes back to its queues at once."""
        self._drain.begin()
        self._tell_ended()
        self._take_no_more()
        for model in self._buffer.models():
            self.pause(model)
        super().on_close()

    def on_stop(self) -> None:
        """Wait for what runs, as long as the drain allows; then that goes back too, and its children are killed."""
        self._drain.begin(at_once=bool(worker_state.should_terminate))
        with self._drain.watched():
            super().on_stop()

    def on_terminate(self) -> None:
        """A cold shutdown: what runs goes back."""
        if self._pool is not None:
            self._give_back_running()
        super().on_terminate()

    # -- what the worker's other parts call --------------------------------------------------------------------

    @property
    def settings(self) -> Settings:
        """The settings that this worker started with."""
        return self._settings

    @property
    def ledger(self) -> Ledger:
        """The main process's own connection to the ledger."""
        return self._ledger

    @property
    def office(self) -> TicketOffice:
        """Where tickets are issued."""
        return self._office

    def run_chore(self, chore: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """Run a function of no argument in the next free child, before any batch, and hand its result on.

        ``then`` is called with None when the child died or the function raised.
        """
        self._chores.append(RunningChore(chore, then))
        self._schedule_dispatch()

    def set_models(
        self,
        catalogue: Mapping[str, ModelEntry],
        *,
        on_outage: Callable[[str], None],
        take_no_more: Callable[[], None],
    ) -> None:
        """Tell which models there are, whom to tell when one stops answering, and how to stop taking tickets."""
        self._catalogue = catalogue
        self._on_outage = on_outage
        self._take_no_more = take_no_more
        self._buffer.set_limits({name: entry.batch_limit for name, entry in catalogue.items() if entry.ready})
        for name, entry in catalogue.items():
            if not entry.ready:
                self.pause(name)
        self._schedule_dispatch()

    def pause(self, model: str) -> None:
        """Begin no more batches of a model; its tickets go back to the queue."""
        for held in self._buffer.pause(model):
            held.given_back()

    @property
    def _time_limit_seconds(self) -> float:
        return self._settings.infer_timeout_seconds + BATCH_SLACK_SECONDS

    # -- batches -----------------------------------------------------------------------------------------------

    def _forget(self, batch: RunningBatch) -> bool:
        """A batch is over, or was taken back; False when it had been forgotten before."""
        if self._running.pop(batch.call.batch_id, None) is None:
            return False
        self._running_jobs.difference_update(batch.call.job_ids)
        return True

    def _schedule_dispatch(self) -> None:
        # At the end of the loop's round, so that all tickets of one bulk pop are there before a batch is cut.
        if self._hub is not None and not self._dispatch_is_due:
            self._dispatch_is_due = True
            self._hub.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        self._dispatch_is_due = False
        while not self._drain.begun and self._busy_children() < self.num_processes:
            if self._chores:
                self._start_chore(self._chores.popleft())
                continue
            batch = self._buffer.next_batch(now_seconds=time.monotonic())
            if batch is None:
                break
            self._start_batch(batch)
        self._wake_for_lingerers()

    def _busy_children(self) -> int:
        return len(self._running) + len(self._running_chores)

    def _wake_for_lingerers(self) -> None:
        due = self._buffer.next_due_seconds()
        if due is not None and self._busy_children() < self.num_processes:
            self._hub.call_later(max(0.0, due - time.monotonic()), self._schedule_dispatch)

    def _start_chore(self, running: RunningChore) -> None:
        self._running_chores.add(running)

        def done(result: Any) -> None:
            if running in self._running_chores:
                self._running_chores.remove(running)
                self._schedule_dispatch()
                running.then(result)

        def failed(failure: Any) -> None:
            log.error("chore.failed", chore=running.chore.__name__, error=repr(failure.exception)[:300])
            done(None)

        running.token = self._children.call(
            running.chore, then=done, failed=failed, timeout_seconds=self._time_limit_seconds
        )

    def _start_batch(self, batch: Batch[HeldRequest]) -> None:
        entries = {held.job_id: held for held in batch.entries if not held.revoked()}
        if not entries:
            return
        entry = self._catalogue.get(batch.model)
        call = BatchCall(
            batch_id=uuid.uuid4().hex,
            model=batch.model,
            job_ids=tuple(entries),
            fingerprint=entry.fingerprint if entry else "",
            alone=batch.alone,
        )
        running = self._running[call.batch_id] = RunningBatch(call, entries)
        self._running_jobs.update(entries)
        running.token = self._children.call(
            run_batch,
            call,
            accepted=partial(self._on_accepted, running),
            then=partial(self._on_done, running),
            failed=partial(self._on_lost, running),
            timeout_seconds=self._time_limit_seconds,
        )

    def _on_accepted(self, batch: RunningBatch, pid: int, time_accepted: float) -> None:
        batch.accepted, batch.pid = True, pid
        for held in batch.entries.values():
            held.accepted(pid, time_accepted)

    def _on_done(self, batch: RunningBatch, report: BatchReport) -> None:
        if not self._forget(batch):
            return
        self._ended.append((batch, report))
        if self._buffer.has_full_batch():
            # To the free child at once, and the callbacks after the round that writes to it: they take about as long as
            # a batch. Where none is full, it is worth to see first what else comes in this round.
            self._dispatch()
            self._hub.call_soon(self._hub.call_soon, self._tell_ended)
        else:
            self._schedule_dispatch()
            self._tell_ended()

    def _tell_ended(self) -> None:
        """Tell Celery of each job of the batches that are over."""
        while self._ended:
            batch, report = self._ended.popleft()
            self._tell_report(batch, report)

    def _tell_report(self, batch: RunningBatch, report: BatchReport) -> None:
        runtime = time.monotonic() - batch.started
        for job in report.jobs:
            self._tell(batch, job, runtime)
        self._leases.issue(report.tickets)
        if report.outage:
            log.warning("model.outage", model=batch.call.model, code=report.outage)
            self.pause(batch.call.model)
            self._on_outage(batch.call.model)

    def _tell(self, batch: RunningBatch, job: JobReport, runtime: float) -> None:
        held = batch.entries[job.job_id]
        if job.status is Status.SUSPECT:
            self._buffer.put_back(batch.call.model, [held], alone=True)
        elif job.status is Status.SUCCEEDED:
            held.succeeded(runtime)
        elif job.status is Status.FAILED:
            held.failed(job.detail, runtime)
        elif job.status in (Status.CANCELED, Status.EXPIRED):
            worker_state.revoked.add(job.job_id)
            held.revoked()
        elif job.status in (Status.RETRIED, Status.HELD):
            held.retried(job.detail, runtime)
        else:
            held.skipped()

    def _on_lost(self, batch: RunningBatch, failure: Any) -> None:
        """The child died, was killed at its time limit, or hit a bug of ours."""
        if not self._forget(batch):
            return
        self._schedule_dispatch()
        runtime = time.monotonic() - batch.started
        if batch.given_back:
            for held in batch.entries.values():
                held.retried("given_back", runtime)
            return
        cause = cause_of(failure)
        bug = None if isinstance(cause, PROCESS_ENDED) else InternalError("A bug of ours ended each try of this job.")
        log.error(
            "batch.lost",
            batch_id=batch.call.batch_id,
            jobs=len(batch.entries),
            error=repr(cause)[:300],
            trace=failure.traceback if bug else None,
        )
        states = self._leases.lose(batch.call, bug)
        code = bug.code if bug else WorkerLost.code
        for job_id, held in batch.entries.items():
            if states.get(job_id) == Status.FAILED:
                held.failed(code, runtime)
            else:
                held.retried(code, runtime)

    def _give_back_running(self) -> None:
        """Give running jobs back as if they had not been begun, and kill the children that run them.

        Called from the drain's own thread, too, while the main one waits for the children to end.
        """
        for batch in tuple(self._running.values()):
            batch.given_back = True
            if not self._leases.give_back(batch.call):
                # There is no time to wait for each batch's answer.
                break
        self._children.kill()

    def _renew_leases(self) -> None:
        # A copy: while the worker drains, this runs in a thread beside the one that ends batches.
        self._leases.renew([batch.call for batch in tuple(self._running.values()) if not batch.given_back])

    def _maintain(self) -> None:
        """Look after the children; a worker that cannot keep any alive ends, and is seen to."""
        # There may be more of them: an operator or the autoscaler adds some without a word.
        self._schedule_dispatch()
        if not self._children.maintain() and not self._drain.begun:
            worker_state.should_terminate = EX_FAILURE
