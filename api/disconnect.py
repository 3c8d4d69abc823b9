"""Work for a client that may leave before it is done."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from api.cancellation import AGAIN_SECONDS, end_task

T = TypeVar("T")


async def unless_gone(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do the work, and stop it when the client closes the connection; the body must have been read.

    The work runs in the caller's own task, and only the look-out in one more: thousands wait like this.

    Raises:
        ClientDisconnect: it has, and the work is canceled.
    """
    watch = _LookOut()
    gone = asyncio.create_task(_gone(request))
    gone.add_done_callback(watch.leave)
    try:
        return await watch.outlast(work)
    except asyncio.CancelledError as error:
        if watch.left and watch.take_back() == 0:
            raise ClientDisconnect from error
        raise
    finally:
        watch.stop()
        await end_task(gone)


class _LookOut:
    """Cancels the task that works, once the client has gone."""

    def __init__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._requests = 0
        self._stopped = False
        self.left = False

    def leave(self, _gone: object = None) -> None:
        """Cancel, again and again: see :func:`api.cancellation.end_task`."""
        if self._stopped:
            return
        self.left = True
        self._requests += 1
        self._task.cancel()
        self._task.get_loop().call_later(AGAIN_SECONDS, self.leave)

    async def outlast(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work. A client that leaves at its very end has not its cancellation hit what the task does next."""
        result = await work
        if self.left:
            await asyncio.sleep(0)
        return result

    def take_back(self) -> int:
        """Take our requests to cancel back; gives how many others there are."""
        self._stopped = True
        left = self._task.cancelling()
        for _ in range(self._requests):
            left = self._task.uncancel()
        return left

    def stop(self) -> None:
        """The work is done."""
        self._stopped = True


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
