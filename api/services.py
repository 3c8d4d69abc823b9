"""What the routes work with: the clients of one API process, built when it starts and closed when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Annotated

from anyio import to_thread
from fastapi import Depends, Request

from api.cancellation import end_task
from api.intake import Intake
from api.models import KnownModels
from api.uploads import UploadReader
from api.waiters import Waiters
from tidegate.ledger import AsyncLedger
from tidegate.settings import Settings
from tidegate.store import connect_async
from tidegate.tickets import TicketOffice


@dataclass(frozen=True)
class Services:
    """Everything that lives as long as the process serves."""

    settings: Settings
    ledger: AsyncLedger
    models: KnownModels
    intake: Intake
    uploads: UploadReader
    waiters: Waiters


@asynccontextmanager
async def open_services(settings: Settings) -> AsyncIterator[Services]:
    """Build the services; nothing is sent to Redis before it is needed, so the process starts without it."""
    async with AsyncExitStack() as stack:
        client = connect_async(settings)
        stack.push_async_callback(client.aclose)
        office = TicketOffice.for_publisher(settings)
        stack.push_async_callback(to_thread.run_sync, office.close)
        ledger = AsyncLedger(client, settings)
        intake = Intake(ledger, office)
        stack.push_async_callback(intake.aclose)
        waiters = Waiters(client, ledger)
        listening = asyncio.create_task(waiters.listen(), name="waiters")
        stack.push_async_callback(end_task, listening)
        yield Services(
            settings=settings,
            ledger=ledger,
            models=KnownModels(client, settings),
            intake=intake,
            uploads=UploadReader(settings),
            waiters=waiters,
        )


async def _services_of(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


#: A route's parameter of this type is given the services.
ServicesOfApp = Annotated[Services, Depends(_services_of)]
