"""Whether the process lives, and whether it can accept jobs; for load balancers and the people behind them."""

from __future__ import annotations

from fastapi import APIRouter

from api.deadline import store_deadline
from api.documentation import problems
from api.schemas import Health, Model, Readiness
from api.services import ServicesOfApp
from tidegate.errors import NoModelsYet, ShuttingDown, StoreUnavailable

router = APIRouter(tags=["health"])


@router.get("/healthz", operation_id="check_health")
async def check_health() -> Health:
    """The process lives. This touches nothing, so it answers also while Redis and Triton are down."""
    return Health()


@router.get("/readyz", operation_id="check_readiness", responses=problems(NoModelsYet, ShuttingDown, StoreUnavailable))
async def check_readiness(services: ServicesOfApp) -> Readiness:
    """Jobs can be accepted: Redis answers, and there is a model that runs now or did before."""
    if services.drain.begun:
        raise ShuttingDown("This replica is about to stop.")
    async with store_deadline(services.settings):
        await services.ledger.ping()
        entries = (await services.models.all()).values()
    if not any(entry.served_before for entry in entries):
        broken = [f"{entry.name}: {entry.reason}" for entry in entries]
        raise NoModelsYet("; ".join(["No worker has reported a model that can be served", *broken]))
    return Readiness(models=[Model.from_entry(entry) for entry in entries])
