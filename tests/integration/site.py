"""A whole Tidegate for tests of what people and programs use: API and worker as processes, on a stub of Triton."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.integration.api_client import ApiServer
from tests.integration.rig import Rig, running_rig


@dataclass(frozen=True)
class Site:
    """What such a test works with.

    Attributes:
        rig: everything behind the API.
        api: the API's process.
    """

    rig: Rig
    api: ApiServer

    @property
    def url(self) -> str:
        """The API's address."""
        return self.api.url

    @property
    def knows_repetitions(self) -> bool:
        """Whether the API says that it reads ``Idempotency-Key``."""
        document = httpx.get(f"{self.url}/openapi.json", timeout=10, trust_env=False).json()
        parameters = document["paths"]["/v1/jobs"]["post"].get("parameters", [])
        return "Idempotency-Key" in [parameter["name"] for parameter in parameters]


@contextmanager
def running_site(folder: Path, **settings: Any) -> Iterator[Site]:
    """Run a Redis, a stub of Triton, a worker and the API while the block runs."""
    with ExitStack() as stack:
        rig = stack.enter_context(running_rig(folder, **settings))
        stack.enter_context(rig.worker(concurrency=2))
        api = ApiServer(rig.settings, folder).start()
        stack.callback(api.stop)
        yield Site(rig, api)
