"""What a tenant uses of what it may: requests in a window of time, and open jobs; counted in Redis for all replicas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.commands import Command
from tidegate.settings import Settings


@dataclass(frozen=True)
class Usage:
    """What a tenant has used so far.

    Attributes:
        requests: in this window, with the one that is counted.
        window_left_seconds: until the window is over.
        open_jobs: that are accepted and have not ended.
    """

    requests: int
    window_left_seconds: float
    open_jobs: int


def count_request(tenant: str, settings: Settings) -> Command[Usage]:
    """Count one request; never refuses."""

    def parse(reply: Sequence[int]) -> Usage:
        requests, left_ms, open_jobs = reply
        return Usage(requests, left_ms / 1000, open_jobs)

    return Command("count", [tenant, settings.key_window_seconds * 1000], parse)
