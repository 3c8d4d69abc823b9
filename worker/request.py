"""One classify request as Celery handed it to the pool, and the ways to tell Celery what became of it.

The callbacks are those of Celery's own request: they change its state, count it, acknowledge its message and
send its events. This is the one place that knows which callback means what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import structlog
from billiard.einfo import ExceptionInfo
from celery.exceptions import Ignore, Reject, Retry

log = structlog.get_logger(__name__)


class JobFailed(Exception):
    """What Celery and Flower show of a failed job: its code."""


def failure_info(error: Exception) -> ExceptionInfo:
    """An exception as it arrives from a child, with a traceback of one line."""
    try:
        raise error
    except type(error):
        info = ExceptionInfo()
    # billiard wraps it for the way through a pipe, which it did not take.
    info.exception = error
    return info


class HeldRequest:
    """A request that the pool holds, from its arrival to its end.

    Celery keeps a weak reference to it as the pool's "result", and calls :meth:`terminate` on a revoke.
    """

    def __init__(self, *, job_id: str, model: str, request: Any, callbacks: Mapping[str, Callable[..., Any]]) -> None:
        self.job_id = job_id
        self.model = model
        self._request = request
        self._callbacks = callbacks

    @classmethod
    def from_options(cls, *, job_id: str, options: Mapping[str, Any]) -> HeldRequest:
        """Read what Celery's request passes to a pool: its bound methods, and so the request itself."""
        request = options["callback"].__self__
        return cls(job_id=job_id, model=request.args[0], request=request, callbacks=options)

    def terminate(self, signal: Any) -> None:
        """Celery asks for this after a revoke; :meth:`revoked` sees to it when the batch is cut."""

    def revoked(self) -> bool:
        """Whether it was revoked or is past its expiry; tells Celery so the first time."""
        return self._guard("revoked", self._request.revoked) is True

    def accepted(self, pid: int, time_accepted: float) -> None:
        """A child has begun with it."""
        self._guard("accepted", self._callbacks["accept_callback"], pid, time_accepted)

    def succeeded(self, runtime_seconds: float) -> None:
        """It has a result; the result itself stands in the ledger."""
        self._end("succeeded", self._callbacks["callback"], (0, "'succeeded'", runtime_seconds))

    def failed(self, code: str, runtime_seconds: float) -> None:
        """It failed for good."""
        self._end("failed", self._callbacks["callback"], (1, failure_info(JobFailed(code)), runtime_seconds))

    def retried(self, code: str, runtime_seconds: float) -> None:
        """It is back in the queue, and a new ticket will come."""
        error = Retry(exc=JobFailed(code))
        self._end("retried", self._callbacks["callback"], (1, failure_info(error), runtime_seconds))

    def skipped(self) -> None:
        """There was nothing to do for this ticket."""
        self._end("skipped", self._callbacks["error_callback"], failure_info(Ignore()))

    def given_back(self) -> None:
        """Its message goes back to the head of its queue."""
        self._end("given_back", self._callbacks["error_callback"], failure_info(Reject("paused", requeue=True)))

    def _end(self, what: str, callback: Callable[..., Any], *args: Any) -> None:
        # A revoke with terminate, while it ran, has told Celery its end already.
        if not self._request._already_revoked:
            self._guard(what, callback, *args)

    def _guard(self, what: str, callback: Callable[..., Any], *args: Any) -> Any:
        try:
            return callback(*args)
        except Exception:
            # One request's trouble (an event that cannot be sent, say) must not keep the others' end from them.
            log.exception("request.callback_failed", job_id=self.job_id, callback=what)
            return None
