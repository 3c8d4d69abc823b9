"""The embedded Triton: NVIDIA's own server out of the nvidia-pytriton wheel, and the command that runs it.

The wheel carries the server and its Python backend. :func:`prepare_backends` lays out a backend directory with
that one and ours for ONNX Runtime, so that the embedded server takes the same ``config.pbtxt`` and
``model.onnx`` as a GPU Triton. The stack's supervisor and the integration tests call this.
"""

from __future__ import annotations

import enum
import importlib.util
import os
import platform
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.local import MissingPart, resource

OLDEST_GLIBC = (2, 35)
"""What the wheel was built for (manylinux_2_35)."""

_LOOPBACK = "127.0.0.1"
_MACHINES = ("x86_64", "aarch64")
_POLL_SECONDS = 2
_EXIT_TIMEOUT_SECONDS = 10
_STUB = "triton_python_backend_stub"
_UTILS = "triton_python_backend_utils.py"


class ModelControl(enum.StrEnum):
    """Who decides which models are loaded."""

    EXPLICIT = "explicit"
    """All of the repository at the start, then whoever calls the model control API, as a tuner does."""
    POLL = "poll"
    """What lies in the repository; looked at every 2 s. Tries a broken model again each time, and says so."""
    NONE = "none"
    """All of the repository at the start, and no change after it."""


@dataclass(frozen=True, slots=True)
class TritonWheel:
    """Where the parts of the wheel lie.

    Attributes:
        home: the folder with the server, its backends and the stubs.
        libraries: the folder with the shared libraries they need.
    """

    home: Path
    libraries: Path

    @property
    def server(self) -> Path:
        """The server program."""
        return self.home / "bin" / "tritonserver"

    @property
    def python_backend(self) -> Path:
        """The folder of the Python backend."""
        return self.home / "backends" / "python"

    @property
    def stub(self) -> Path:
        """The program that runs Python models in the running version of Python; may not exist."""
        return self.home / "python_backend_stubs" / f"{sys.version_info.major}.{sys.version_info.minor}" / _STUB


def find_triton() -> TritonWheel:
    """The wheel's parts, once it is certain that they run here.

    Raises:
        MissingPart: wrong platform, glibc too old, a package not installed, no stub for this version of Python,
            or a Python without a shared library.
    """
    require_platform()
    package = _package_folder("pytriton")
    _package_folder("onnxruntime")
    wheel = TritonWheel(package / "tritonserver", package.parent / "nvidia_pytriton.libs")
    if not wheel.stub.is_file():
        raise MissingPart(
            f"the embedded Triton runs no models in Python {sys.version_info.major}.{sys.version_info.minor}; "
            "use Python 3.11 or 3.12"
        )
    libpython_folder()
    return wheel


def prepare_backends(target: Path) -> Path:
    """Lay out the directory that the server takes as its backend directory, and return it.

    May be called again, also while a server runs from it.

    Args:
        target: a folder of ours; it is made where it does not exist.

    Raises:
        MissingPart: as :func:`find_triton`.
        OSError: the folder cannot be written.
    """
    wheel = find_triton()
    utils = wheel.python_backend / _UTILS
    model = resource("backends") / "onnxruntime" / "model.py"
    contents = {
        "python": (wheel.python_backend / "libtriton_python.so", wheel.stub, utils),
        "onnxruntime": (model, wheel.stub, utils),
    }
    for backend, files in contents.items():
        folder = target / backend
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            _copy(file, folder)
    return target


def triton_command(
    *,
    backends: Path,
    repository: Path,
    http_port: int,
    grpc_port: int,
    metrics_port: int,
    control: ModelControl = ModelControl.EXPLICIT,
) -> list[str]:
    """The command of a server on loopback in which a broken model stops neither the server nor the others.

    Args:
        backends: as :func:`prepare_backends` made it.
        repository: the model repository.
        http_port: TCP port of the HTTP API.
        grpc_port: TCP port of the gRPC API.
        metrics_port: TCP port of the Prometheus metrics.
        control: who decides which models are loaded.

    Raises:
        MissingPart: as :func:`find_triton`.
    """
    options = {
        "model-repository": str(repository),
        "backend-directory": str(backends),
        "http-address": _LOOPBACK,
        "http-port": str(http_port),
        "grpc-address": _LOOPBACK,
        "grpc-port": str(grpc_port),
        "metrics-address": _LOOPBACK,
        "metrics-port": str(metrics_port),
        "allow-gpu-metrics": "false",
        "exit-on-error": "false",
        "strict-readiness": "false",
        "exit-timeout-secs": str(_EXIT_TIMEOUT_SECONDS),
        "model-control-mode": control.value,
    }
    if control is ModelControl.EXPLICIT:
        options["load-model"] = "*"
    if control is ModelControl.POLL:
        options["repository-poll-secs"] = str(_POLL_SECONDS)
    return [str(find_triton().server), *(f"--{name}={value}" for name, value in options.items())]


def triton_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment in which the server finds its libraries, and its models find this very Python.

    The stub runs an isolated Python: it ignores PYTHONPATH and PYTHONHOME, and takes its packages from where
    the first ``python3`` on the PATH stands.

    Args:
        environ: the environment to start from, as a rule ``os.environ``; it is not changed.

    Raises:
        MissingPart: as :func:`find_triton`, or this Python has no ``python3`` beside it.
    """
    wheel = find_triton()
    programs = Path(sys.executable).parent
    if not (programs / "python3").exists():
        raise MissingPart(f"the embedded Triton looks for python3 beside {sys.executable}; make a virtual environment")
    return {
        **environ,
        "PATH": _joined(programs, environ.get("PATH")),
        "LD_LIBRARY_PATH": _joined(wheel.libraries, libpython_folder(), environ.get("LD_LIBRARY_PATH")),
        # ONNX Runtime would write a telemetry session into the folder for temporary files.
        "ORT_DISABLE_TELEMETRY": "1",
    }


def require_platform() -> None:
    """Make sure that the wheel's programs run on this system at all.

    Raises:
        MissingPart: another platform, or a C library that is too old.
    """
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise MissingPart(
            f"the embedded Triton runs on Linux x86-64 and arm64, not on {sys.platform} {platform.machine()}; "
            "run Triton in a container or elsewhere, and set TIDEGATE_TRITON_URL"
        )
    libc, version = platform.libc_ver()
    if libc != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < OLDEST_GLIBC:
        raise MissingPart(
            f"the embedded Triton needs glibc 2.35 or newer, this system has {libc or 'another C library'} {version}; "
            "use Debian 12, Ubuntu 22.04 or newer"
        )


def _package_folder(name: str) -> Path:
    """Where an importable package lies, without importing it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise MissingPart(f"the embedded Triton needs the Python package {name}: pip install 'tidegate[local]'")
    return Path(spec.submodule_search_locations[0])


def libpython_folder() -> Path:
    """Where the shared library of the running Python lies; the stub is linked against it.

    Raises:
        MissingPart: this Python has none.
    """
    name = f"libpython{sys.version_info.major}.{sys.version_info.minor}.so.1.0"
    libdir, multiarch = sysconfig.get_config_vars("LIBDIR", "MULTIARCH")
    # Debian keeps it in the folder of the architecture; a Python that was moved remembers where it was built.
    for folder in (Path(libdir), Path(libdir) / (multiarch or ""), Path(sys.base_prefix) / "lib"):
        if (folder / name).is_file():
            return folder
    raise MissingPart(
        f"this Python has no {name}, which the embedded Triton needs to run models: it is linked statically; "
        "install the library (on Debian and Ubuntu: libpython3), or use a Python built with --enable-shared"
    )


def _copy(source: Path, folder: Path) -> None:
    """Put a file into a folder in one step.

    Copied, because Triton refuses links that lead out of the backend's folder; by renaming, because the stub
    of a running server cannot be written to.
    """
    descriptor, name = tempfile.mkstemp(dir=folder)
    os.close(descriptor)
    shutil.copy(source, name)
    Path(name).replace(folder / source.name)


def _joined(*folders: Path | str | None) -> str:
    return os.pathsep.join(str(folder) for folder in folders if folder)
