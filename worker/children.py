"""The pool's child processes, as the batches see them: called, listened to, and killed.

Celery's ``AsynPool`` (a pool of billiard's) does the work. What is known of its inside, and used, is all here; a
contract test pins it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import structlog
from billiard.exceptions import RestartFreqExceeded, Terminated, TimeLimitExceeded, WorkerLostError
from billiard.pool import RUN

log = structlog.get_logger(__name__)

#: How billiard tells that a call came to nothing because of its process, and not because of an exception in it.
PROCESS_ENDED = (WorkerLostError, TimeLimitExceeded, Terminated, SystemExit)

#: So many children may die within a second for each that there is, but at least so many. Celery's own limit of 100 in
#: all is reached by a large pool whose children are killed at once, and closes the pool for good.
DEATHS_A_CHILD = 20
LEAST_DEATHS = 100


def death_limit(children: int) -> int:
    """How many children may die within a second before the worker itself must be at fault."""
    return max(LEAST_DEATHS, DEATHS_A_CHILD * children)


def cause_of(failure: Any) -> BaseException:
    """The exception that billiard hands to an error callback, out of what it is wrapped in for the way."""
    cause: BaseException = getattr(failure.exception, "exc", failure.exception)
    return cause


class Children:
    """The children of one pool."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        then: Callable[[Any], None],
        failed: Callable[[Any], None],
        accepted: Callable[[int, float], None] | None = None,
        timeout_seconds: float,
    ) -> Any:
        """Have the next free child call a function, which is sent by name.

        Args:
            function: of a module that the children have, too.
            arguments: of the call; they are pickled.
            then: is given what it returned.
            failed: is given a failure when it raised, or its child died or took too long; see :func:`cause_of`.
            accepted: is given the child's pid and the time when it began.
            timeout_seconds: after which the child is killed.

        Returns:
            A token for :meth:`is_known`.
        """
        return self._pool.apply_async(
            function,
            arguments,
            accept_callback=accepted,
            callback=then,
            error_callback=failed,
            timeout=timeout_seconds,
        )

    def flush(self, calls: Iterable[Any]) -> None:
        """Do what Celery wants done when the broker is lost, but keep calls that a child has got.

        Args:
            calls: the tokens of those that have not ended.
        """
        with self._handed_over_is_kept(calls):
            self._pool.flush()

    @contextmanager
    def _handed_over_is_kept(self, calls: Iterable[Any]) -> Iterator[None]:
        # The flush forgets what is not accepted, because a broker would deliver that again. But an acceptance may be
        # on its way: the child would run its call all the same, with nobody to renew the leases or to hear of the end.
        waiting = {id(call) for call in self._pool.outbound_buffer}
        unheard = [call for call in calls if call and not call._accepted and call._write_to and id(call) not in waiting]
        for call in unheard:
            call._accepted = True
        try:
            yield
        finally:
            for call in unheard:
                call._accepted = call._worker_pid is not None
                if not call._accepted and not call._write_to._is_alive():
                    call.discard()

    def is_known(self, call: Any) -> bool:
        """Whether there will be a word of this call."""
        return call is not None and call._job in self._pool._cache

    def terminate_job(self, pid: int, signal_number: Any = None) -> None:
        """End one child, as a revoke asks for."""
        self._pool.terminate_job(pid, signal_number)

    def maintain(self) -> bool:
        """Start children in the place of dead ones; False when that is over, because they die too fast."""
        try:
            self._pool.maintain_pool()
        except RestartFreqExceeded as error:
            log.critical("children.dying", error=str(error))
        # Celery itself may have met that error in another place; it closes the pool, and nothing would run any more.
        return bool(self._pool._state == RUN)

    def kill(self) -> None:
        """Kill them all."""
        for child in tuple(self._pool._pool):
            with suppress(ProcessLookupError):
                os.kill(child.pid, signal.SIGKILL)
