"""For programs that use Tidegate over the network; imports nothing of its server side.

    from tidegate.client import Client

    with Client("http://127.0.0.1:8000") as client:
        print(client.classify("coffee.jpg").top.class_name)

Alone it needs httpx and pydantic; ``docs/client.md`` tells the rest.
"""

from __future__ import annotations

from tidegate.client.asynchronous import AsyncClient, AsyncJob
from tidegate.client.documents import JobState, Model, Prediction, Region, Result
from tidegate.client.errors import (
    ApiUnreachable,
    ClientError,
    Conflict,
    ImageError,
    InferenceError,
    JobCanceled,
    JobExpired,
    NotAuthorized,
    NotFound,
    RequestError,
    ServerError,
    ThrottledError,
    UnavailableError,
    UrlError,
    WaitTimeout,
)
from tidegate.client.images import Image
from tidegate.client.options import Options
from tidegate.client.outcomes import Outcome
from tidegate.client.sync import Client, Job
from tidegate.client.webhooks import InvalidWebhook, verify

__all__ = [
    "ApiUnreachable",
    "AsyncClient",
    "AsyncJob",
    "Client",
    "ClientError",
    "Conflict",
    "Image",
    "ImageError",
    "InferenceError",
    "InvalidWebhook",
    "Job",
    "JobCanceled",
    "JobExpired",
    "JobState",
    "Model",
    "NotAuthorized",
    "NotFound",
    "Options",
    "Outcome",
    "Prediction",
    "Region",
    "RequestError",
    "Result",
    "ServerError",
    "ThrottledError",
    "UnavailableError",
    "UrlError",
    "WaitTimeout",
    "verify",
]
