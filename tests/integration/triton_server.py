"""The real embedded Triton for a test: ``with running_triton(repository) as triton: ...``."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.integration.server_process import ServerProcess, free_ports
from tidegate.local.triton import ModelControl, prepare_backends, triton_command, triton_environment


class TritonServer(ServerProcess):
    """A Triton on loopback.

    Attributes:
        http_url: base of the HTTP API.
        grpc_url: ``host:port``, as tritonclient and ``TIDEGATE_TRITON_URL`` take it.
        metrics_url: where Prometheus looks.
    """

    def __init__(self, repository: Path, *, workspace: Path, control: ModelControl) -> None:
        http_port, grpc_port, metrics_port = free_ports(3)
        command = triton_command(
            backends=prepare_backends(workspace / "backends"),
            repository=repository,
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
            control=control,
        )
        super().__init__(command, log=workspace / "triton.log", environ=triton_environment(os.environ))
        self.http_url = f"http://127.0.0.1:{http_port}"
        self.grpc_url = f"127.0.0.1:{grpc_port}"
        self.metrics_url = f"http://127.0.0.1:{metrics_port}/metrics"

    def is_ready(self) -> bool:
        """Whether it serves; every model has been tried by then, and may be broken."""
        try:
            return httpx.get(f"{self.http_url}/v2/health/ready", timeout=1.0, trust_env=False).is_success
        except httpx.TransportError:
            return False


@contextmanager
def running_triton(
    repository: Path, *, control: ModelControl = ModelControl.EXPLICIT, ready_within_seconds: float = 60.0
) -> Iterator[TritonServer]:
    """Run a Triton while the block runs; its ports stay the same when the block starts it again.

    Args:
        repository: the model repository; all of it is loaded.
        control: who may load and unload models afterwards.
        ready_within_seconds: how long all its models may take to load.

    Raises:
        RuntimeError: it does not start; with its last log lines.
        MissingPart: the embedded Triton cannot run on this machine.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-triton-") as workspace:
        server = TritonServer(repository, workspace=Path(workspace), control=control)
        server.ready_within_seconds = ready_within_seconds
        try:
            yield server.start()
        finally:
            server.stop()
