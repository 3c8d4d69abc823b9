"""The application: ``uvicorn --factory api.app:create_app``."""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI

from api.body_limit import BodyLimit
from api.body_room import BodyRoom
from api.documentation import DESCRIPTION, TAGS, DocumentedAPI
from api.errors import install_handlers
from api.lookups import MAX_LOOKUP_BYTES
from api.routes import deliveries, health, jobs, lookups, models, submissions
from api.services import open_services
from api.uploads import max_body_bytes
from tidegate.settings import Settings, load_settings
from tidegate.telemetry import configure_logging

#: Of the contract, not of the code behind it; the first number is that of the paths.
API_VERSION = "1.0"


def create_app(settings: Settings | None = None) -> FastAPI:
    """Build the application; its clients are made when it starts to serve.

    Args:
        settings: by default the environment's, and then logging is set up as well.

    Raises:
        SettingsError: the environment's settings are not right.
    """
    if settings is None:
        settings = load_settings()
        configure_logging(settings, may_fork=False)
        _join_server_logs()
        _spare_the_imported()
    app = DocumentedAPI(
        title="Tidegate",
        description=DESCRIPTION,
        version=API_VERSION,
        openapi_tags=TAGS,
        lifespan=_lifespan(settings),
        # A redirect would be built from a Host header that a proxy may have changed.
        redirect_slashes=False,
    )
    app.add_middleware(
        BodyLimit,
        max_bytes=max_body_bytes(settings),
        max_bytes_by_path={"/v1/jobs:batch": settings.max_batch_bytes, "/v1/jobs:get": MAX_LOOKUP_BYTES},
        room=BodyRoom(settings.max_upload_bytes),
        timeout_seconds=settings.upload_timeout_seconds,
    )
    install_handlers(app)
    for routes in (submissions, lookups, jobs, deliveries, models, health):
        # Included as routers they would be looked for twice in every request.
        app.router.routes.extend(routes.router.routes)
    return app


def _lifespan(settings: Settings) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(settings) as services:
            app.state.services = services
            yield

    return lifespan


def _spare_the_imported() -> None:
    """Have the garbage collector leave alone what was imported, which stays: to walk it again and again takes long.

    How often it comes is as it was: who is refused may leave a cycle behind, with an upload in it.
    """
    gc.collect()
    gc.freeze()


def _join_server_logs() -> None:
    """Let uvicorn's lines go where ours go, in the same format."""
    for name in ("uvicorn", "uvicorn.access", "uvicorn.error"):
        logger = logging.getLogger(name)
        if not logger.handlers and not logger.propagate:
            # Silenced by ``--no-access-log``: its lines would show queries, in which metadata may stand.
            continue
        logger.handlers.clear()
        logger.propagate = True
