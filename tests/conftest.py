"""What every kind of test shares."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Asynchronous tests, marked ``anyio``, run on asyncio, as the API does."""
    return "asyncio"
