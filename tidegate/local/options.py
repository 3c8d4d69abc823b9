"""What a person can ask of the embedded stack. Light to import, since the command line is made of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from pathlib import Path

from tidegate.concurrency import default_concurrency


class PartName(enum.StrEnum):
    """What a person may leave out of the stack."""

    REDIS = "redis"
    TRITON = "triton"
    WORKER = "worker"
    OUTBOUND = "outbound"
    API = "api"
    FLOWER = "flower"


@dataclass(frozen=True, kw_only=True)
class StackOptions:
    """What a person asks of a stack.

    Attributes:
        model_repository: what Triton serves; None for the bundled one, whose model is built first.
        data_dir: where Redis keeps its append-only file; None for a folder that goes at the end.
        api_port: TCP port on loopback, as the other three; 0 for any free one.
        workers: how many classify workers.
        concurrency: how many batches each of them runs at a time.
        without: parts that are not started, and are reached by their ``TIDEGATE_`` setting.
        timeout_seconds: how long all parts together may take to get ready.
    """

    model_repository: Path | None = None
    data_dir: Path | None = None
    api_port: int = 0
    flower_port: int = 0
    redis_port: int = 0
    triton_grpc_port: int = 0
    workers: int = 1
    concurrency: int = field(default_factory=default_concurrency)
    without: frozenset[PartName] = frozenset()
    timeout_seconds: float = 60.0
