"""What the routes work with: the clients of one API process, built when it starts and closed when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

import anyio
import redis.asyncio
from fastapi import Depends, Request
from redis.exceptions import RedisError

from api.cancellation import end_task
from api.destinations import Destinations
from api.drain import Drain
from api.gate import Gate
from api.intake import Intake
from api.models import KnownModels
from api.readings import Readings
from api.uploads import UploadReader
from api.waiters import Waiters
from tidegate.ledger import AsyncLedger
from tidegate.settings import Settings
from tidegate.store import connect_async
from tidegate.store_advice import warn_about_async
from tidegate.tickets import AsyncTicketOffice

#: Threads that hash large images at the same time, without the interpreter.
HASHING_THREADS = 2
#: How often a Redis that cannot be reached is tried, to look at its settings.
STORE_LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class Services:
    """Everything that lives as long as the process serves."""

    settings: Settings
    ledger: AsyncLedger
    models: KnownModels
    intake: Intake
    readings: Readings
    uploads: UploadReader
    destinations: Destinations
    waiters: Waiters
    drain: Drain
    gate: Gate
    hashing: anyio.CapacityLimiter


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Build the services; nothing is sent to Redis before it is needed, so the process starts without it."""
    async with AsyncExitStack() as stack:
        client = connect_async(settings)
        stack.push_async_callback(client.aclose)
        ledger = AsyncLedger(client, settings)
        intake = Intake(ledger, AsyncTicketOffice(client))
        stack.push_async_callback(intake.aclose)
        readings = Readings(ledger)
        waiters = Waiters(client, ledger, readings)
        for work in (waiters.listen(), waiters.reread(), _warn_about_store(client)):
            stack.push_async_callback(end_task, asyncio.create_task(work))
        drain = Drain(settings.api_drain_seconds, then=waiters.hurry)
        stack.enter_context(drain.listening())
        gate = Gate(settings)
        gate.announce()
        yield Services(
            settings=settings,
            ledger=ledger,
            models=KnownModels(client, settings),
            intake=intake,
            readings=readings,
            uploads=UploadReader(settings),
            destinations=Destinations(settings),
            waiters=waiters,
            drain=drain,
            gate=gate,
            hashing=anyio.CapacityLimiter(HASHING_THREADS),
        )


async def _warn_about_store(client: redis.asyncio.Redis) -> None:
    """Look at the settings of Redis once, when it can first be reached."""
    while True:
        try:
            return await warn_about_async(client)
        except RedisError:
            await asyncio.sleep(STORE_LOOK_SECONDS)


def services_of(request: Request) -> Services:
    """The services of the application that a request came to."""
    services: Services = request.app.state.services
    return services


async def _services_of(request: Request) -> Services:
    # Asynchronous, or FastAPI would run it in a thread.
    return services_of(request)


#: A route's parameter of this type is given the services.
ServicesOfApp = Annotated[Services, Depends(_services_of)]
