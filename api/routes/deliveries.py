"""The webhook deliveries of a job: what became of them, and once more."""

from __future__ import annotations

import structlog
from fastapi import APIRouter, Response

from api.callers import Caller, CallerOfRequest
from api.deadline import store_deadline
from api.documentation import problems
from api.ownership import no_such_job
from api.schemas import DeliveryList, DeliveryStatus
from api.services import Services, ServicesOfApp
from tidegate.errors import DeliveryNotFound, JobNotFound, RateLimited, StoreUnavailable, Unauthorized
from tidegate.jobs import is_job_id
from tidegate.webhooks.deliveries import Delivery, is_delivery_id, redeliver
from tidegate.webhooks.lookup import deliveries_of

log = structlog.get_logger(__name__)
router = APIRouter(prefix="/v1/jobs/{job_id}/deliveries", tags=["webhooks"])


@router.get(
    "", operation_id="list_deliveries", responses=problems(Unauthorized, JobNotFound, RateLimited, StoreUnavailable)
)
async def list_deliveries(
    job_id: str, response: Response, services: ServicesOfApp, caller: CallerOfRequest
) -> DeliveryList:
    """What became of the webhooks of a job; to be asked for as long as they are tried, also when the job is gone."""
    async with store_deadline(services.settings):
        found = await _deliveries(services, caller, job_id)
    response.headers["Cache-Control"] = "no-store"
    return DeliveryList(deliveries=[DeliveryStatus.from_delivery(delivery) for delivery in found])


@router.post(
    "/{delivery_id}/redeliver",
    operation_id="redeliver_webhook",
    status_code=202,
    responses=problems(Unauthorized, JobNotFound, DeliveryNotFound, RateLimited, StoreUnavailable),
)
async def redeliver_webhook(
    job_id: str, delivery_id: str, services: ServicesOfApp, caller: CallerOfRequest
) -> DeliveryStatus:
    """Send a webhook once more, whatever became of it: under the same id, so a receiver may take it for a repeat."""
    async with store_deadline(services.settings):
        found = {delivery.id for delivery in await _deliveries(services, caller, job_id)}
        if not is_delivery_id(delivery_id) or delivery_id not in found:
            raise DeliveryNotFound("The job has no such webhook delivery.")
        await services.ledger.run(redeliver([delivery_id]))
        (delivery,) = [each for each in await _deliveries(services, caller, job_id) if each.id == delivery_id]
    log.info("webhook.redelivery", delivery_id=delivery_id)
    return DeliveryStatus.from_delivery(delivery)


async def _deliveries(services: Services, caller: Caller, job_id: str) -> list[Delivery]:
    """Those of a job of the caller's; its deliveries may outlive it."""
    if not is_job_id(job_id):
        raise no_such_job()
    record = await services.ledger.get(job_id)
    found = await deliveries_of(services.ledger.client, services.settings, job_id)
    own = [delivery for delivery in found or () if delivery.client == caller.tenant]
    if (record.tenant != caller.tenant) if record else not own:
        raise no_such_job()
    return own
