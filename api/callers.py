"""Who calls, whether they may, and how much they may still ask for: settled before anything of a body is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request, Response

from api.deadline import store_deadline
from api.errors import QUOTA_HEADERS
from api.services import Services, services_of
from tidegate.errors import RateLimited
from tidegate.settings import Settings
from tidegate.usage import Usage, count_request

#: Names of the policies in the headers and in ``violated-policies``.
REQUESTS, JOBS = "requests", "jobs"


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    Attributes:
        tenant: the name of its key; empty where there are no keys.
    """

    tenant: str


async def caller_of(request: Request) -> Caller:
    """Who sends this request; counts it, and notes what is left for :func:`noted_headers`.

    Raises:
        Unauthorized: it is nobody who may.
        RateLimited: it has sent too many.
    """
    services = services_of(request)
    tenant = services.gate.tenant_of(request)
    if services.settings.key_requests or services.settings.key_open_jobs:
        await _count(tenant, request, services)
    return Caller(tenant)


def noted_headers(request: Request) -> Mapping[str, str]:
    """What the answer must tell of the caller's limits."""
    headers: Mapping[str, str] = request.scope.get(QUOTA_HEADERS, {})
    return headers


async def _caller_of(request: Request, response: Response) -> Caller:
    caller = await caller_of(request)
    response.headers.update(noted_headers(request))
    return caller


async def _count(tenant: str, request: Request, services: Services) -> None:
    settings = services.settings
    async with store_deadline(settings):
        usage = await services.ledger.run(count_request(tenant, settings))
    request.scope[QUOTA_HEADERS] = quota_headers(usage, settings)
    if settings.key_requests and usage.requests > settings.key_requests:
        raise RateLimited(
            "This key has sent as many requests as it may for now.",
            policies=(REQUESTS,),
            retry_after_seconds=usage.window_left_seconds,
        )


def quota_headers(usage: Usage, settings: Settings) -> dict[str, str]:
    """``RateLimit-Policy`` and ``RateLimit``. Source: draft-ietf-httpapi-ratelimit-headers, September 2025."""
    policies, limits = [], []
    if settings.key_requests:
        left, reset = max(0, settings.key_requests - usage.requests), math.ceil(usage.window_left_seconds)
        policies.append(f'"{REQUESTS}";q={settings.key_requests};w={settings.key_window_seconds}')
        limits.append(f'"{REQUESTS}";r={left};t={reset}')
    if settings.key_open_jobs:
        policies.append(f'"{JOBS}";q={settings.key_open_jobs};qu="concurrent-requests"')
        limits.append(f'"{JOBS}";r={max(0, settings.key_open_jobs - usage.open_jobs)}')
    return {"RateLimit-Policy": ", ".join(policies), "RateLimit": ", ".join(limits)}


#: A route's parameter of this type lets in whoever may call, and tells who it is.
CallerOfRequest = Annotated[Caller, Depends(_caller_of)]
