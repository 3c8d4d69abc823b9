"""Tasks end, and work stops when nobody waits for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect, Request

from api.cancellation import end_task
from api.disconnect import unless_gone

pytestmark = pytest.mark.anyio


async def test_a_task_that_swallows_a_cancellation_ends_all_the_same() -> None:
    """It is told again until it listens."""
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await end_task(task)
    assert task.cancelled()


async def test_a_task_that_has_failed_is_ended_without_a_word() -> None:
    """Whoever ends it does not want to know, and nothing is left to complain about it later."""

    async def failing() -> None:
        raise ValueError

    task = asyncio.create_task(failing())
    await asyncio.wait({task})
    await end_task(task)


def request_of(*messages: dict[str, Any]) -> Request:
    """A request whose client sends these, and then keeps silent."""
    waiting = list(messages)

    async def receive() -> dict[str, Any]:
        if waiting:
            return waiting.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    return Request({"type": "http", "method": "GET", "path": "/", "headers": []}, receive)


async def test_work_goes_on_while_the_client_is_there() -> None:
    """Its result is given, whatever else arrives."""

    async def work() -> int:
        await asyncio.sleep(0.01)
        return 42

    assert await unless_gone(request_of({"type": "http.request", "body": b"", "more_body": False}), work()) == 42


async def test_work_stops_when_the_client_leaves() -> None:
    """It is canceled at once, and cleans up after itself."""
    cleaned = False

    async def work() -> None:
        nonlocal cleaned
        try:
            await asyncio.sleep(3600)
        finally:
            cleaned = True

    with pytest.raises(ClientDisconnect):
        await unless_gone(request_of({"type": "http.disconnect"}), work())
    assert cleaned


async def test_the_failure_of_work_is_the_failure_of_the_request() -> None:
    """An error is not lost on the way."""

    async def work() -> None:
        raise ValueError("it failed")

    with pytest.raises(ValueError, match="it failed"):
        await unless_gone(request_of(), work())
