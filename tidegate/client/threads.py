"""Work on many things at a time, in threads."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from queue import SimpleQueue
from threading import Event, Thread
from typing import Generic, Protocol, TypeVar

Item = TypeVar("Item")
Done = TypeVar("Done")
Item_contra = TypeVar("Item_contra", contravariant=True)
Done_co = TypeVar("Done_co", covariant=True)


def as_they_end(
    work: Callable[[Item], Done], items: Iterable[Item], *, concurrency: int, left: Event
) -> Generator[Done, None, None]:
    """Do the work on every item, on so many at a time, and give what comes of it as it comes.

    An item is taken only when there is room for it. Whoever leaves early waits for nothing.

    Args:
        work: done in threads; an exception of it is raised here.
        items: walked in the calling thread.
        concurrency: how many items are under way, or done and not given yet.
        left: is set at the end, so that work under way can see that nobody waits for it.
    """
    return through(_Crew(work), items, concurrency=concurrency, left=left)


class Crew(Protocol[Item_contra, Done_co]):
    """Threads that do the work on items."""

    def take_up(self, item: Item_contra, /) -> None:
        """Have the work on an item done."""
        ...

    def next_done(self) -> Done_co:
        """What came of the next item that is done; raises what the work on it raised."""
        ...

    def dismiss(self) -> None:
        """Let the threads end after what is under way."""
        ...


def through(
    crew: Crew[Item, Done], items: Iterable[Item], *, concurrency: int, left: Event
) -> Generator[Done, None, None]:
    """Give the items to a crew, so many at a time, and give what comes of them; as :func:`as_they_end`."""
    under_way = 0
    try:
        for item in items:
            crew.take_up(item)
            under_way += 1
            if under_way == concurrency:
                yield crew.next_done()
                under_way -= 1
        for _ in range(under_way):
            yield crew.next_done()
    finally:
        left.set()
        crew.dismiss()


class _Crew(Generic[Item, Done]):
    """Threads that come as they are needed. They are daemons: one in the middle of a request keeps no process alive."""

    def __init__(self, work: Callable[[Item], Done]) -> None:
        self._work = work
        self._to_do: SimpleQueue[Item | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[Done | None, BaseException | None]] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    def take_up(self, item: Item) -> None:
        """Have a thread do the work on an item, at once."""
        self._busy += 1
        if self._busy > self._threads:
            Thread(target=self._labour, name=f"tidegate-map-{self._threads}", daemon=True).start()
            self._threads += 1
        self._to_do.put(item)

    def next_done(self) -> Done:
        """What came of the next item that is done; raises what the work on it raised."""
        done, error = self._done.get()
        self._busy -= 1
        if error is not None:
            raise error
        assert done is not None
        return done

    def dismiss(self) -> None:
        """Let every thread end after its present item."""
        for _ in range(self._threads):
            self._to_do.put(None)

    def _labour(self) -> None:
        while (item := self._to_do.get()) is not None:
            try:
                self._done.put((self._work(item), None))
            except BaseException as error:  # noqa: BLE001 - raised again where somebody waits
                self._done.put((None, error))
