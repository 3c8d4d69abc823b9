"""``tidegate triton``: the embedded Triton alone, where others can reach it; what its container image runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Option

from tidegate.cli.failures import told
from tidegate.local import resource
from tidegate.local.ports import LOOPBACK
from tidegate.local.triton import prepare_backends, triton_command, triton_environment

Port = Annotated[int, Option(min=1, max=65_535)]


def triton(
    *,
    backends_dir: Annotated[Path, Option(file_okay=False, resolve_path=True, help="Where its backends are laid out.")],
    model_repository: Annotated[
        Path | None, Option(exists=True, file_okay=False, resolve_path=True, help="In place of the bundled one.")
    ] = None,
    address: Annotated[
        str, Option(help="What it listens on; 0.0.0.0 for every network that the machine is on.")
    ] = LOOPBACK,
    http_port: Port = 8000,
    grpc_port: Port = 8001,
    metrics_port: Port = 8002,
) -> None:
    """Become the embedded Triton: the real server, on the CPU, without a container."""
    with told():
        command = triton_command(
            backends=prepare_backends(backends_dir),
            repository=model_repository or resource("model_repository"),
            http_port=http_port,
            grpc_port=grpc_port,
            metrics_port=metrics_port,
        )
        # Of an option that is given twice, Triton takes the last.
        command += [f"--{listener}-address={address}" for listener in ("http", "grpc", "metrics")]
        os.execve(command[0], command, triton_environment(os.environ))  # noqa: S606 - our own command, no shell
