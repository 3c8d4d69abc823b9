"""No request waits longer than it may, whatever the client of Redis makes of being told so."""

from __future__ import annotations

import asyncio

import pytest

from api.deadline import Deadline
from tidegate.errors import StoreUnavailable

pytestmark = pytest.mark.anyio

SECONDS = 0.05
#: A limit against hangs.
LIMIT_SECONDS = 20


def late() -> StoreUnavailable:
    """What is told."""
    return StoreUnavailable("Too late.")


async def wait_for_ever(deaf_to: int) -> int:
    """Never end, and miss that many cancellations; gives how many it was told of in all."""
    for _ in range(deaf_to):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue
    await asyncio.Event().wait()
    return deaf_to


@pytest.mark.parametrize("deaf_to", [0, 1, 3])
async def test_a_block_that_misses_its_cancellation_ends_all_the_same(deaf_to: int) -> None:
    """It is cancelled again, and its client is told; the task goes on as if nothing had been."""

    async def request() -> int:
        with pytest.raises(StoreUnavailable):
            async with Deadline(SECONDS, late):
                await wait_for_ever(deaf_to)
        task = asyncio.current_task()
        assert task is not None
        # What else the request does can be awaited as before.
        await asyncio.sleep(0)
        return task.cancelling()

    async with asyncio.timeout(LIMIT_SECONDS):
        assert await asyncio.create_task(request()) == 0


async def test_a_block_in_time_is_left_alone() -> None:
    """Its result stands, its own errors pass, and nothing comes after it."""
    async with Deadline(LIMIT_SECONDS, late):
        await asyncio.sleep(0)
    with pytest.raises(KeyError):
        async with Deadline(LIMIT_SECONDS, late):
            raise KeyError
    async with Deadline(SECONDS, late):
        pass
    await asyncio.sleep(2 * SECONDS)


async def test_a_request_that_is_ended_from_outside_is_not_late() -> None:
    """A client that is gone cancels its request, before the deadline or along with it."""

    async def request(started: asyncio.Event) -> None:
        async with Deadline(LIMIT_SECONDS, late):
            started.set()
            await asyncio.Event().wait()

    started = asyncio.Event()
    task = asyncio.create_task(request(started))
    await started.wait()
    task.cancel()
    await asyncio.wait({task}, timeout=LIMIT_SECONDS)
    assert task.cancelled()


async def test_an_end_from_outside_counts_beside_that_of_the_clock() -> None:
    """Whoever cancels the task while the clock does it too gets what was asked for."""

    async def request() -> None:
        async with Deadline(SECONDS, late):
            await wait_for_ever(1)

    task = asyncio.create_task(request())
    await asyncio.sleep(0)
    # The one that is missed is that of the clock, which comes again beside this one.
    asyncio.get_running_loop().call_later(1.5 * SECONDS, task.cancel)
    await asyncio.wait({task}, timeout=LIMIT_SECONDS)
    assert task.cancelled()
