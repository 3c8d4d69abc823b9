"""The embedded Triton: whether it can run here, and how it is run."""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

import pytest

from tidegate.local import MissingPart, resource
from tidegate.local.triton import ModelControl, find_triton, prepare_backends, triton_command, triton_environment


def _options(control: ModelControl = ModelControl.EXPLICIT) -> dict[str, str]:
    command = triton_command(
        backends=Path("/backends"),
        repository=Path("/models"),
        http_port=8100,
        grpc_port=8101,
        metrics_port=8102,
        control=control,
    )
    assert Path(command[0]).name == "tritonserver"
    return dict(option.removeprefix("--").split("=", 1) for option in command[1:])


def test_triton_listens_on_loopback_alone() -> None:
    """Each of the three services has its port, and none is open to other machines."""
    options = _options()
    assert {name: options[f"{name}-address"] for name in ("http", "grpc", "metrics")} == dict.fromkeys(
        ("http", "grpc", "metrics"), "127.0.0.1"
    )
    assert [options[f"{name}-port"] for name in ("http", "grpc", "metrics")] == ["8100", "8101", "8102"]


@pytest.mark.parametrize("control", ModelControl)
def test_broken_model_stops_neither_start_nor_readiness(control: ModelControl) -> None:
    """In every mode the server starts and is ready with what it could load."""
    options = _options(control)
    assert options["exit-on-error"] == options["strict-readiness"] == "false"
    assert options["model-control-mode"] == control


def test_explicit_control_still_loads_the_whole_repository() -> None:
    """A tuner may load and unload, and nobody has to before the first request."""
    assert _options(ModelControl.EXPLICIT)["load-model"] == "*"


def test_backends_are_laid_out_as_files_of_their_own(tmp_path: Path) -> None:
    """Triton refuses links that lead out of a backend's folder, and needs stub and utilities in both."""
    assert prepare_backends(tmp_path / "backends") == tmp_path / "backends"
    for backend, own in (("python", "libtriton_python.so"), ("onnxruntime", "model.py")):
        names = {own, "triton_python_backend_stub", "triton_python_backend_utils.py"}
        folder = tmp_path / "backends" / backend
        assert {file.name for file in folder.iterdir()} == names
        assert not any(file.is_symlink() for file in folder.iterdir())
        assert os.access(folder / "triton_python_backend_stub", os.X_OK)


def test_backends_are_renewed_in_place(tmp_path: Path) -> None:
    """A second call repairs what an older version left, and leaves nothing lying about."""
    model = prepare_backends(tmp_path) / "onnxruntime" / "model.py"
    model.write_text("of an older version")
    prepare_backends(tmp_path)
    assert model.read_bytes() == (resource("backends") / "onnxruntime" / "model.py").read_bytes()
    assert len(list(model.parent.iterdir())) == 3


def test_models_run_in_the_python_that_runs_us() -> None:
    """The stub asks the PATH for python3, so ours comes first; the rest of the environment stays."""
    before = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/opt/lib", "HOME": "/root"}
    after = triton_environment(before)
    assert after["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    assert after["LD_LIBRARY_PATH"].startswith(f"{find_triton().libraries}:")
    assert after["LD_LIBRARY_PATH"].endswith(":/opt/lib")
    assert after["HOME"] == "/root"
    assert before["PATH"] == "/usr/bin"


def test_environment_without_library_path_gets_no_empty_entry() -> None:
    """An empty entry would mean the current folder."""
    assert not triton_environment({})["LD_LIBRARY_PATH"].endswith(":")


@pytest.mark.parametrize(
    ("attribute", "value", "told"),
    [
        ("sys.platform", "darwin", "not on darwin"),
        ("platform.machine", lambda: "riscv64", "not on linux riscv64"),
        ("platform.libc_ver", lambda: ("glibc", "2.31"), "needs glibc 2.35 or newer, this system has glibc 2.31"),
        ("platform.libc_ver", lambda: ("", ""), "this system has another C library"),
        ("importlib.util.find_spec", lambda _name: None, "needs the Python package pytriton"),
        ("tidegate.local.triton.TritonWheel.stub", Path("/nowhere"), "runs no models in Python 3"),
    ],
)
def test_machine_that_cannot_run_triton_is_told_why(
    monkeypatch: pytest.MonkeyPatch, attribute: str, value: object, told: str
) -> None:
    """One sentence says what is missing."""
    monkeypatch.setattr(attribute, value)
    with pytest.raises(MissingPart, match=told):
        find_triton()


def test_statically_linked_python_is_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Python without its shared library is refused before Triton fails on it model by model."""
    monkeypatch.setattr(sysconfig, "get_config_vars", lambda *_names: [str(tmp_path), "x86_64-linux-gnu"])
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(MissingPart, match="linked statically"):
        find_triton()


def test_resource_that_is_nowhere_is_told() -> None:
    """A broken installation is named as such."""
    with pytest.raises(MissingPart, match="no folder 'nonsense'"):
        resource("nonsense")
