"""The blocking client's way with many images: threads that hand them in by the form, and one to look at their jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Generic, Protocol, TypeVar

from tidegate.client.exchanges import Exchange, Exchanges
from tidegate.client.forms import (
    HANDS,
    LINGER_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    Content,
    OpenJob,
    has_room,
    look_at,
    moment_after,
    next_pause,
    read_or_error,
    sort_out,
    submit_form,
)
from tidegate.client.images import ImageT
from tidegate.client.options import Options
from tidegate.client.outcomes import Outcome

T = TypeVar("T")


class Carry(Protocol):
    """Carries a call out."""

    def __call__(self, exchange: Exchange[T], /) -> T:
        """Do what the call wants until it ends; raises as it does, or when nobody waits for it any more."""
        ...


class Bulk(Generic[ImageT]):
    """Hands in the images that it is given; a crew for :func:`tidegate.client.threads.through`.

    Args:
        exchanges: the calls.
        carry: carries them out.
        options: the same for all images.
        left: is set when nobody waits for outcomes any more.
        wait: for the ends of the jobs; else an outcome tells that the image was accepted.
        timeout: seconds to wait for the end of each; None for as long as it takes.
    """

    def __init__(
        self, exchanges: Exchanges, carry: Carry, options: Options, *, left: Event, wait: bool, timeout: float | None
    ) -> None:
        self._exchanges = exchanges
        self._carry = carry
        self._options = options
        self._left = left
        self._wait = wait
        self._timeout = timeout
        self._begun = False
        self._waiting: SimpleQueue[ImageT | None] = SimpleQueue()
        self._accepted: SimpleQueue[OpenJob[ImageT] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[Outcome[ImageT] | BaseException] = SimpleQueue()

    def take_up(self, image: ImageT) -> None:
        """Have an image handed in."""
        if not self._begun:
            self._begun = True
            for work in [self._hand_in] * HANDS + [self._look_after]:
                # Daemons: one in the middle of a request keeps no process alive.
                Thread(target=self._labour, args=(work,), name="tidegate-bulk", daemon=True).start()
        self._waiting.put(image)

    def next_done(self) -> Outcome[ImageT]:
        """The next outcome; raises what a thread met that is no error of the client."""
        outcome = self._outcomes.get()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def dismiss(self) -> None:
        """Let the threads end."""
        for _ in range(HANDS):
            self._waiting.put(None)
        self._accepted.put(None)

    def _labour(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
            self._outcomes.put(error)

    def _hand_in(self) -> None:
        while (first := self._waiting.get()) is not None:
            until = moment_after(self._timeout)
            self._left.wait(LINGER_SECONDS)
            verdicts = self._carry(submit_form(self._exchanges, self._form(first), self._options))
            outcomes, jobs = sort_out(verdicts, wait=self._wait, until=until)
            for outcome in outcomes:
                self._outcomes.put(outcome)
            for job in jobs:
                self._accepted.put(job)

    def _form(self, first: ImageT) -> list[tuple[ImageT, Content]]:
        """An image and those that wait behind it, as many as go into one form."""
        form = [(first, read_or_error(first))]
        while has_room(form):
            try:
                image = self._waiting.get_nowait()
            except Empty:
                break
            if image is None:
                # The end, for another time.
                self._waiting.put(None)
                break
            form.append((image, read_or_error(image)))
        return form

    def _look_after(self) -> None:
        jobs: list[OpenJob[ImageT]] = []
        pause = SHORTEST_PAUSE_SECONDS
        while not self._left.is_set():
            try:
                accepted = self._accepted.get_nowait() if jobs else self._accepted.get()
            except Empty:
                began = time.monotonic()
                outcomes, jobs = self._carry(look_at(self._exchanges, jobs))
                for outcome in outcomes:
                    self._outcomes.put(outcome)
                pause = next_pause(pause, some_ended=bool(outcomes), look_seconds=time.monotonic() - began)
                self._left.wait(pause)
            else:
                if accepted is None:
                    return
                jobs.append(accepted)
