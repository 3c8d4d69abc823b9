"""The models that jobs can be given to."""

from __future__ import annotations

from fastapi import APIRouter

from api.callers import CallerOfRequest
from api.deadline import store_deadline
from api.documentation import problems
from api.schemas import Model, ModelList
from api.services import ServicesOfApp
from tidegate.errors import ModelNotFound, NoModelsYet, RateLimited, StoreUnavailable, Unauthorized

router = APIRouter(prefix="/v1/models", tags=["models"])


@router.get("", operation_id="list_models", responses=problems(Unauthorized, RateLimited, StoreUnavailable))
async def list_models(services: ServicesOfApp, _caller: CallerOfRequest) -> ModelList:
    """All models that workers found in Triton, also those that cannot serve, with the reason."""
    async with store_deadline(services.settings):
        entries = await services.models.all()
    return ModelList(models=[Model.from_entry(entry) for entry in entries.values()])


@router.get(
    "/{name}",
    operation_id="get_model",
    responses=problems(Unauthorized, ModelNotFound, RateLimited, NoModelsYet, StoreUnavailable),
)
async def get_model(name: str, services: ServicesOfApp, _caller: CallerOfRequest) -> Model:
    """One model."""
    async with store_deadline(services.settings):
        return Model.from_entry(await services.models.named(name))
