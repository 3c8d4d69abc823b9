"""The Celery app of the workers: ``celery -A worker.app worker`` serves every model.

Its last line builds the app from the environment, since that is where Celery looks for it; importing any other
module of this package does nothing.
"""

from __future__ import annotations

import logging
from typing import Any

import structlog
from celery import Celery
from celery.app.amqp import AMQP
from celery.signals import setup_logging, task_rejected, task_revoked
from celery.worker import state as worker_state
from kombu import Connection

from tidegate.concurrency import default_concurrency
from tidegate.errors import StoreUnavailable
from tidegate.ledger import Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.telemetry import configure_logging
from tidegate.tickets import CLASSIFY_TASK, celery_settings
from worker.advice import StoreAdvice
from worker.dispatcher import Dispatcher
from worker.events import GatherEvents
from worker.models import ModelQueues
from worker.outbound import register_tasks
from worker.sweeper import Sweeper

log = structlog.get_logger(__name__)

#: Longest pause between attempts to reach a broker that is gone; Celery's own rule grows it to 30 s.
RECONNECT_PAUSE_SECONDS = 2


class PatientConnection(Connection):  # type: ignore[misc]  # kombu is untyped
    """A connection that is tried again soon, for as long as it takes."""

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Like kombu's, with pauses that stay short: accepted jobs wait behind this."""
        pauses = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": RECONNECT_PAUSE_SECONDS}
        return super().ensure_connection(*args, **(pauses | kwargs))


class PatientAMQP(AMQP):  # type: ignore[misc]  # celery is untyped
    """Celery's messaging with :class:`PatientConnection`."""

    Connection = PatientConnection


def worker_settings(settings: Settings) -> dict[str, Any]:
    """Celery's configuration for a worker."""
    transport = {"bulk": "worker.transport:Transport", "stock": "redis"}[settings.broker_transport]
    return celery_settings(settings) | {
        "broker_transport": transport,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "worker_pool": "worker.pool:MicroBatchPool",
        "worker_concurrency": default_concurrency(),
        # Until the models are known: one ticket a child.
        "worker_prefetch_multiplier": 1,
        "worker_max_tasks_per_child": settings.child_max_calls,
        # In KiB.
        "worker_max_memory_per_child": settings.child_max_memory_bytes // 1024,
        # How long after a child's death its batch is given up, in seconds.
        "worker_lost_wait": 0.5,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
    }


def create_app(settings: Settings) -> Celery:
    """The app, with the classify task, the pool and the two steps."""
    app = Celery("tidegate", amqp=PatientAMQP, set_as_current=True)
    app.config_from_object(worker_settings(settings))
    app.steps["consumer"].update({Dispatcher, GatherEvents, ModelQueues, Sweeper, StoreAdvice})

    @app.task(name=CLASSIFY_TASK, ignore_result=True)  # type: ignore[untyped-decorator]  # celery is untyped
    def classify(model: str) -> None:
        """Stands for a job in Celery's eyes; its requests are run by the pool, many at a time."""
        raise RuntimeError(f"{CLASSIFY_TASK} for {model} needs worker_pool = worker.pool:MicroBatchPool")

    register_tasks(app)
    setup_logging.connect(lambda **_signal: _configure_logging(settings), weak=False)
    task_revoked.connect(_Canceler(settings), weak=False)
    task_rejected.connect(_Refusals(settings), weak=False)
    return app


def _configure_logging(settings: Settings) -> None:
    configure_logging(settings)
    # A line a ticket, which costs more than the ticket; ``--loglevel`` does not reach us, the setting does.
    logging.getLogger("celery.worker.strategy").setLevel(max(logging.WARNING, logging.getLogger().level))


class _Canceler:
    """A job that is revoked in Celery's eyes is cancelled in the ledger; one that expired there, if it is so here."""

    def __init__(self, settings: Settings) -> None:
        self._ledger = _LazyLedger(settings)

    def __call__(self, sender: Any, request: Any, expired: bool = False, **_signal: Any) -> None:  # noqa: FBT001, FBT002
        if sender.name != CLASSIFY_TASK:
            return
        ledger = self._ledger.get()
        end = ledger.commands.expire if expired else ledger.commands.cancel
        try:
            (state,) = ledger.run(end([request.id]))
        except StoreUnavailable as error:
            # Its ticket comes again with the next sweep, and so does this.
            log.warning("job.not_canceled", job_id=request.id, error=error.code)
            return
        log.info("job.revoked", job_id=request.id, state=state)
        if state == "early":
            # This machine's clock is ahead of Redis's, which alone counts. The job's next ticket must find it willing.
            worker_state.revoked.discard(request.id)


class _Refusals:
    """Counts messages that are not run because they are no tickets: pickles, say, or nonsense."""

    def __init__(self, settings: Settings) -> None:
        self._ledger = _LazyLedger(settings)

    def __call__(self, exc: Any = None, **_signal: Any) -> None:
        log.warning("message.refused", reason=type(exc).__name__ if exc is not None else "unreadable")
        try:
            self._ledger.get().count_refused()
        except StoreUnavailable as error:
            log.warning("message.not_counted", error=error.code)


class _LazyLedger:
    """The main process's ledger, connected on first use."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._ledger: Ledger | None = None

    def get(self) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger(connect(self._settings), self._settings)
        return self._ledger


app = create_app(load_settings())
