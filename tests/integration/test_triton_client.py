"""The Triton client against a real Triton: shared memory, restarts, and what is left when a child dies."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto
from tritonclient.utils import InferenceServerException

from tests.integration.probe_models import add_model, channel_means
from tests.integration.triton_server import TritonServer, running_triton
from tests.integration.workers import quick_settings, wait_until
from tidegate.errors import ModelNotAvailable, ModelUnreachable
from worker.shared_memory import FOLDER, SharedRegion, remove_orphans
from worker.triton import Triton
from worker.triton.channel import channel_target, one_address

CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "image" data_type: TYPE_UINT8 format: FORMAT_NCHW dims: [ 3, 4, 4 ] } ]
output [ { name: "means" data_type: TYPE_FP32 dims: [ 3 ] label_filename: "labels.txt" } ]
parameters { key: "tidegate.scores" value { string_value: "raw" } }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A real Triton with a model that answers the mean of each channel."""
    repository = tmp_path_factory.mktemp("models")
    folder = add_model(repository, "means", channel_means(TensorProto.UINT8), CONFIG)
    (folder / "labels.txt").write_text("red\ngreen: the second\nblue\n")
    with running_triton(repository) as server:
        yield server


@pytest.fixture
def triton(server: TritonServer, request: pytest.FixtureRequest) -> Iterator[Triton]:
    """A client; parametrised by how images travel."""
    client = Triton(quick_settings("redis://unused", server.grpc_url, triton_shm=getattr(request, "param", "auto")))
    yield client
    client.close()


def ask(triton: Triton, count: int, start: int = 0) -> NDArray[np.float32]:
    """Run ``count`` images of one colour each, prepared where the client wants them."""
    contract = triton.contract("means")
    room = triton.room(contract, count)
    for index in range(count):
        room[index] = start + index
    output, version = triton.infer(contract, room)
    assert version == "1"
    return output


def reachable(triton: Triton) -> bool:
    """Whether the client's channel has found the server (again)."""
    try:
        return bool(triton.repository())
    except ModelUnreachable:
        return False


def regions() -> list[str]:
    """The shared memory objects of this process."""
    return sorted(path.name for path in FOLDER.glob(f"tidegate-*-{os.getpid()}-*"))


@pytest.mark.parametrize("triton", ["auto", "on", "off"], indirect=True)
def test_answers_are_the_same_whichever_way_images_travel(triton: Triton) -> None:
    """Through shared memory or in messages, in any size up to the limit: each row is its own image's."""
    for count in (1, 8, 3):
        assert ask(triton, count, start=count).tolist() == [[count + index] * 3 for index in range(count)]


def test_shared_memory_is_used_and_given_back(server: TritonServer) -> None:
    """One region serves all batches, parts of a batch included; nothing is left after closing."""
    before = regions()
    triton = Triton(quick_settings("redis://unused", server.grpc_url))
    ask(triton, 3)
    during = regions()
    ask(triton, 8)
    contract = triton.contract("means")
    room = triton.room(contract, 8)
    for index in range(8):
        room[index] = index
    output, _ = triton.infer(contract, room[5:7])
    assert output.tolist() == [[5] * 3, [6] * 3]
    assert len(during) == len(before) + 1
    assert regions() == during
    triton.close()
    assert regions() == before


def test_restart_of_triton_is_survived(server: TritonServer, triton: Triton) -> None:
    """A Triton that starts anew knows no regions: the first call goes by message, and the next is shared again."""
    ask(triton, 2)
    server.stop()
    with pytest.raises(ModelUnreachable):
        ask(triton, 2)
    server.start()
    wait_until(lambda: reachable(triton), what="the channel to connect again")
    for _ in range(3):
        assert ask(triton, 2, start=7).tolist() == [[7] * 3, [8] * 3]
    assert len(regions()) >= 1


def test_registration_that_is_answered_too_late_is_not_the_end(triton: Triton, monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton knows the region by then, and takes no name twice: it is told anew, and images go that way again."""
    client = triton._shared._client
    register = client.register_system_shared_memory

    def register_late(*arguments: Any, **options: Any) -> None:
        register(*arguments, **options)
        monkeypatch.setattr(client, "register_system_shared_memory", register)
        raise InferenceServerException("Deadline Exceeded", status="StatusCode.DEADLINE_EXCEEDED")

    monkeypatch.setattr(client, "register_system_shared_memory", register_late)
    for registered in (False, True):
        assert ask(triton, 2, start=7).tolist() == [[7] * 3, [8] * 3]
        assert triton._shared._registered is registered


def test_region_of_a_killed_process_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a child that was killed leaves behind, the next one on the host removes; the living keep theirs."""
    # Of a host that no other test is on.
    host = f"test-{os.getpid()}"
    name_host = f"import socket; socket.gethostname = lambda: {host!r}"
    script = f"{name_host}; from worker.shared_memory import SharedRegion; print(SharedRegion(4096, serial=1).name)"
    dead = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip()
    monkeypatch.setattr(socket, "gethostname", lambda: host)
    alive = SharedRegion(4096, serial=99)
    assert (FOLDER / dead).exists()
    assert remove_orphans() == [dead]
    assert [(FOLDER / name).exists() for name in (dead, alive.name)] == [False, True]
    alive.remove()


def test_labels_are_read_from_triton(triton: Triton) -> None:
    """Every label comes by one request, in the order of the classes, colons and all."""
    contract = triton.contract("means")
    sample = contract.empty_batch(1)
    sample[...] = 0
    assert triton.labels(contract, sample) == ("red", "green: the second", "blue")


def test_unknown_model_is_not_available(triton: Triton) -> None:
    """Asking for a model that is not there is an outage of that model, not of Triton."""
    with pytest.raises(ModelNotAvailable):
        triton.contract("nope")


def test_repository_tells_what_is_ready(triton: Triton) -> None:
    """The index has one row a version, with its readiness."""
    assert [(row.name, row.version, row.ready) for row in triton.repository()] == [("means", "1", True)]


@pytest.mark.parametrize(
    ("url", "target", "single"),
    [
        ("127.0.0.1:8001", "dns:///127.0.0.1:8001", True),
        ("localhost:8001", "dns:///localhost:8001", True),
        ("127.0.0.1:8001, 127.0.0.2:8001", "ipv4:127.0.0.1:8001,127.0.0.2:8001", False),
    ],
)
def test_several_addresses_share_the_calls(url: str, target: str, *, single: bool) -> None:
    """A comma list becomes one balanced target, and only a lone server gets shared memory."""
    assert channel_target(url) == target
    assert one_address(url) is single


def test_calls_are_balanced_and_outlive_a_lost_server(server: TritonServer, tmp_path: Path) -> None:
    """Two addresses of which one is dead: calls reach the other."""
    host, port = server.grpc_url.split(":")
    triton = Triton(quick_settings("redis://unused", f"127.0.0.2:1,{host}:{port}"))
    try:
        assert ask(triton, 2, start=3).tolist() == [[3] * 3, [4] * 3]
    finally:
        triton.close()
