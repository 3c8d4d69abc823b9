"""MLServer, another real server of the Open Inference Protocol, in a virtual environment of its own.

``python -m tests.integration.mlserver`` makes that environment; tests that need it are skipped at home without it, and
make it in CI.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.integration.server_process import ServerProcess, free_ports
from tidegate.local import MissingPart

#: What exactly is installed.
REQUIREMENTS = Path(__file__).with_name("mlserver-requirements.txt")
#: It has no release for a newer Python.
NEWEST_PYTHON = (3, 12)
ENVIRONMENT = Path(__file__).parents[2] / ".cache" / f"mlserver-{sys.version_info.major}.{sys.version_info.minor}"


def find_mlserver() -> Path:
    """The program, installed where it has to be.

    Raises:
        MissingPart: it is not installed, and this is no CI that could wait for it; or it cannot run here.
    """
    if sys.version_info[:2] > NEWEST_PYTHON:
        raise MissingPart("MLServer runs on no newer Python than 3.12")
    program = ENVIRONMENT / "bin" / "mlserver"
    if not program.exists() and os.environ.get("CI") == "true":
        install()
    if not program.exists():
        raise MissingPart("MLServer is not installed; python -m tests.integration.mlserver does it")
    return program


def install() -> None:
    """Make the virtual environment."""
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    command = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*command, "-r", str(REQUIREMENTS)], check=True, timeout=600)


class MlServer(ServerProcess):
    """An MLServer on loopback.

    Attributes:
        grpc_url: ``host:port``, as ``TIDEGATE_TRITON_URL`` takes it.
    """

    ready_within_seconds = 60.0

    def __init__(self, folder: Path) -> None:
        http_port, grpc_port, metrics_port = free_ports(3)
        settings = {
            "host": "127.0.0.1",
            "http_port": http_port,
            "grpc_port": grpc_port,
            "metrics_port": metrics_port,
            "parallel_workers": 0,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        program = find_mlserver()
        super().__init__([str(program), "start", str(folder)], log=folder / "mlserver.log", environ=_environment())
        self._http_url = f"http://127.0.0.1:{http_port}"
        self.grpc_url = f"127.0.0.1:{grpc_port}"

    def is_ready(self) -> bool:
        """Whether it and all its models are."""
        try:
            return httpx.get(f"{self._http_url}/v2/health/ready", timeout=1.0, trust_env=False).is_success
        except httpx.TransportError:
            return False


def _environment() -> dict[str, str]:
    """Ours without what would lead its Python to our packages."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}


def add_quadrants(
    folder: Path, name: str, *, side: int = 32, versions: tuple[str, ...] = ("1",), **fields: Any
) -> None:
    """Put the quadrant probe into MLServer's folder: float32 ``[n, 3, side, side]`` to twelve scores.

    Args:
        folder: of the server.
        name: of the model.
        side: of its images, even.
        versions: each answers its own number times the scores; none where the model has no versions.
        fields: more of the model's settings.
    """
    for version in versions or ("",):
        home = folder / f"{name}-{version or 'only'}"
        home.mkdir(parents=True)
        (home / "quadrants.py").write_text(_QUADRANTS)
        settings = {
            "name": name,
            "implementation": "quadrants.Quadrants",
            "parameters": {"version": version} if version else {},
            "inputs": [{"name": "image", "datatype": "FP32", "shape": [-1, 3, side, side]}],
            "outputs": [{"name": "scores", "datatype": "FP32", "shape": [-1, 12]}],
        }
        (home / "model-settings.json").write_text(json.dumps(settings | fields))


@contextmanager
def running_mlserver(folder: Path) -> Iterator[MlServer]:
    """Run a server over the models in ``folder`` while the block runs.

    Raises:
        MissingPart: as :func:`find_mlserver`.
        RuntimeError: it does not start; with its last log lines.
    """
    server = MlServer(folder)
    try:
        yield server.start()
    finally:
        server.stop()


_QUADRANTS = """
import numpy as np
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse


class Quadrants(MLModel):
    async def predict(self, payload):
        images = NumpyCodec.decode_input(payload.inputs[0])
        count, _, height, width = images.shape
        means = images.reshape(count, 3, 2, height // 2, 2, width // 2).mean(axis=(3, 5)).reshape(count, 12)
        scores = (means / 32 * float(self.version or 1)).astype(np.float32)
        outputs = [NumpyCodec.encode_output("scores", scores)]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
"""


if __name__ == "__main__":
    install()
