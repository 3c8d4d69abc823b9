"""The Python-based ONNX Runtime backend, inside the real embedded Triton."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import psutil
import pytest
import tritonclient.grpc as triton_grpc
from onnx import TensorProto
from tritonclient.utils import InferenceServerException, np_to_triton_dtype

from tests.integration import probe_models
from tests.integration.probe_models import add_model
from tests.integration.triton_server import TritonServer, running_triton
from tidegate.local import resource

Array = npt.NDArray[Any]

# Waits for exactly so many rows, far longer than a test needs to send them.
MERGE_FOUR = "dynamic_batching { preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 20000000 }"
IMAGE = 'input [ { name: "image" data_type: TYPE_FP32 dims: [ 3, 4, 4 ] } ]'
MEANS = 'output [ { name: "means" data_type: TYPE_FP32 dims: [ 3 ] } ]'


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with one model for each thing that the backend must get right, and broken ones among them."""
    folder = tmp_path_factory.mktemp("repository")
    _add_sound_models(folder)
    _add_broken_models(folder)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[TritonServer]:
    """The embedded Triton over it."""
    with running_triton(repository) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: TritonServer) -> Iterator[Any]:
    """A gRPC client of it."""
    with triton_grpc.InferenceServerClient(server.grpc_url) as connected:
        yield connected


def _add_sound_models(folder: Path) -> None:
    witness_io = """
        input [ { name: "x" data_type: TYPE_FP32 dims: [ 2 ] } ]
        output [ { name: "doubled" data_type: TYPE_FP32 dims: [ 2 ] } ]
        output [ { name: "company" data_type: TYPE_INT64 dims: [ 1 ] } ]
    """
    witness = probe_models.batch_witness()
    for name, form in (("witness", 'backend: "onnxruntime"'), ("witness_by_platform", 'platform: "onnxruntime_onnx"')):
        add_model(folder, name, witness, f"{form} max_batch_size: 4 {witness_io} {MERGE_FOUR}")
    reader_io = """
        input [ { name: "text" data_type: TYPE_STRING dims: [ 1 ] } ]
        output [ { name: "number" data_type: TYPE_FP32 dims: [ 1 ] } ]
    """
    reader = f'backend: "onnxruntime" max_batch_size: 4 {reader_io} {MERGE_FOUR}'
    add_model(folder, "reader", probe_models.number_reader(), reader)
    ragged_io = """
        input [ { name: "x" data_type: TYPE_INT64 dims: [ -1 ] allow_ragged_batch: true } ]
        output [ { name: "total" data_type: TYPE_INT64 dims: [ 1 ] } ]
    """
    ragged = f'backend: "onnxruntime" max_batch_size: 4 {ragged_io} {MERGE_FOUR}'
    add_model(folder, "ragged", probe_models.length_witness(), ragged)
    for name, element in (("FP32", TensorProto.FLOAT), ("FP16", TensorProto.FLOAT16), ("UINT8", TensorProto.UINT8)):
        config = f'backend: "onnxruntime" max_batch_size: 4 {IMAGE.replace("FP32", name)} {MEANS}'
        add_model(folder, f"means_{name}", probe_models.channel_means(element), config)
    unbatched = f'backend: "onnxruntime" {IMAGE.replace("3, 4", "1, 3, 4")} {MEANS.replace("[ 3 ]", "[ 1, 3 ]")}'
    add_model(folder, "unbatched", probe_models.channel_means(TensorProto.FLOAT, batch=1), unbatched)
    three_ones = MEANS.replace("dims", "reshape { shape: [ 3, 1, 1 ] } dims")
    reshaped = f'backend: "onnxruntime" max_batch_size: 4 {IMAGE} {three_ones}'
    add_model(folder, "reshaped", probe_models.channel_means(TensorProto.FLOAT, trailing_ones=True), reshaped)
    single = f'backend: "onnxruntime" max_batch_size: 1 {IMAGE} {MEANS}'
    add_model(folder, "single", probe_models.channel_means(TensorProto.FLOAT, batch=1), single)
    renamed = f'backend: "onnxruntime" max_batch_size: 4 default_model_filename: "net.onnx" {IMAGE} {MEANS}'
    file = add_model(folder, "renamed", probe_models.channel_means(TensorProto.FLOAT), renamed) / "1" / "model.onnx"
    file.rename(file.with_name("net.onnx"))


def _add_broken_models(folder: Path) -> None:
    sound = f'backend: "onnxruntime" max_batch_size: 4 {IMAGE} {MEANS}'
    means = probe_models.channel_means(TensorProto.FLOAT)
    add_model(folder, "broken_missing_file", None, sound)
    (add_model(folder, "broken_file", None, sound) / "1" / "model.onnx").write_bytes(b"not a model")
    add_model(folder, "broken_type", probe_models.channel_means(TensorProto.UINT8), sound)
    add_model(folder, "broken_name", means, sound.replace('"image"', '"picture"'))
    add_model(folder, "broken_batch_axis", probe_models.channel_means(TensorProto.FLOAT, batch=1), sound)
    add_model(folder, "broken_empty_config", means, 'backend: "onnxruntime" max_batch_size: 4')
    add_model(folder, "broken_bfloat16", means, sound.replace("FP32", "BF16"))


def _infer(client: Any, model: str, name: str, array: Array, *, outputs: tuple[str, ...] = ()) -> Any:
    tensor = triton_grpc.InferInput(name, array.shape, np_to_triton_dtype(array.dtype))
    tensor.set_data_from_numpy(array)
    wanted = [triton_grpc.InferRequestedOutput(output) for output in outputs] or None
    return client.infer(model, [tensor], outputs=wanted, client_timeout=30)


def _executions(client: Any, model: str) -> int:
    """How often Triton has called the backend for a model."""
    return int(client.get_inference_statistics(model).model_stats[0].execution_count)


def _infer_together(client: Any, model: str, name: str, arrays: list[Array]) -> list[Any]:
    """Send requests at once; for each, its answer or its error."""

    def outcome(array: Array) -> Any:
        try:
            return _infer(client, model, name, array)
        except InferenceServerException as error:
            return error

    with ThreadPoolExecutor(len(arrays)) as pool:
        return list(pool.map(outcome, arrays))


@pytest.mark.parametrize("model", ["witness", "witness_by_platform"])
def test_requests_that_triton_merged_become_one_onnxruntime_call(client: Any, model: str) -> None:
    """Each row saw all four rows of the batch, and each caller got its own row back."""
    before = _executions(client, model)
    questions = [np.array([[number, -number]], np.float32) for number in range(4)]
    answers = _infer_together(client, model, "x", questions)
    for question, answer in zip(questions, answers, strict=True):
        assert answer.as_numpy("company").tolist() == [[4]]
        np.testing.assert_array_equal(answer.as_numpy("doubled"), 2 * question)
    assert _executions(client, model) - before == 1


def test_requests_of_several_rows_are_cut_apart_at_the_right_places(client: Any) -> None:
    """A request of three rows and one of one row share a batch and get three rows and one row."""
    questions = [np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[50, 60]], np.float32)]
    answers = _infer_together(client, "witness", "x", questions)
    for question, answer in zip(questions, answers, strict=True):
        assert set(answer.as_numpy("company").ravel().tolist()) == {4}
        np.testing.assert_array_equal(answer.as_numpy("doubled"), 2 * question)


def test_bad_request_in_a_merged_batch_fails_alone(client: Any) -> None:
    """Three good requests merged with a bad one succeed; the bad one tells what was wrong."""
    texts = [b"1.5", b"not a number", b"-2", b"1e3"]
    questions = [np.array([[text]], np.object_) for text in texts]
    before = _executions(client, "reader")
    answers = _infer_together(client, "reader", "text", questions)
    assert _executions(client, "reader") - before == 1
    assert isinstance(answers[1], InferenceServerException)
    assert "ONNX Runtime" in str(answers[1])
    numbers = [float(answers[index].as_numpy("number")[0, 0]) for index in (0, 2, 3)]
    assert numbers == [1.5, -2.0, 1000.0]


def test_string_that_is_no_text_fails_alone(client: Any) -> None:
    """Bytes that are not UTF-8 are refused, whoever they were merged with."""
    questions = [np.array([[text]], np.object_) for text in (b"1", b"\xff\xd8", b"3", b"4")]
    answers = _infer_together(client, "reader", "text", questions)
    assert isinstance(answers[1], InferenceServerException)
    assert [float(answers[index].as_numpy("number")[0, 0]) for index in (0, 2, 3)] == [1.0, 3.0, 4.0]


def test_requests_of_different_shapes_in_one_batch_are_each_answered(client: Any) -> None:
    """What cannot be merged runs on its own."""
    questions = [np.ones((1, length), np.int64) for length in (2, 5, 2, 9)]
    answers = _infer_together(client, "ragged", "x", questions)
    assert [int(answer.as_numpy("total")[0, 0]) for answer in answers] == [2, 5, 2, 9]


@pytest.mark.parametrize(("name", "dtype"), [("FP32", np.float32), ("FP16", np.float16), ("UINT8", np.uint8)])
def test_element_types_arrive_as_configured(client: Any, name: str, dtype: type[np.generic]) -> None:
    """Bytes and both float types reach the model as what they are."""
    image = np.arange(48).reshape(1, 3, 4, 4).astype(dtype)
    means = _infer(client, f"means_{name}", "image", image).as_numpy("means")
    np.testing.assert_allclose(means, image.astype(np.float32).mean((2, 3)))


@pytest.mark.parametrize("model", ["unbatched", "single"])
def test_model_for_one_image_answers_one_image(client: Any, model: str) -> None:
    """A fixed batch axis of 1 goes with max_batch_size 0, where shapes are the model's own, and with 1."""
    image = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    np.testing.assert_allclose(_infer(client, model, "image", image).as_numpy("means"), image.mean((2, 3)))


def test_output_has_the_shape_that_the_configuration_promises(client: Any) -> None:
    """Trailing axes of 1 that a convolution left are gone where the configuration reshapes them away."""
    images = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4)
    means = _infer(client, "reshaped", "image", images).as_numpy("means")
    np.testing.assert_allclose(means, images.mean((2, 3)))


def test_only_the_outputs_asked_for_are_sent(client: Any) -> None:
    """A client that wants one of two outputs gets one."""
    questions = np.zeros((4, 2), np.float32)
    answer = _infer(client, "witness", "x", questions, outputs=("company",))
    assert [output.name for output in answer.get_response().outputs] == ["company"]


def test_model_file_may_have_another_name(client: Any) -> None:
    """default_model_filename is honoured."""
    assert client.is_model_ready("renamed")


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("broken_missing_file", "model.onnx does not exist"),
        ("broken_file", "ONNX Runtime cannot load"),
        ("broken_type", "'image' is configured as TYPE_FP32, but the model has tensor(uint8)"),
        ("broken_name", "the model has no input 'picture', it has ['image']"),
        ("broken_batch_axis", "the first axis of input 'image' [1, 3, 4, 4] is fixed"),
        ("broken_empty_config", "the configuration must list every input"),
        ("broken_bfloat16", "TYPE_BF16, which the embedded ONNX Runtime backend cannot handle"),
    ],
)
def test_broken_model_is_refused_with_its_reason(server: TritonServer, model: str, reason: str) -> None:
    """Triton's index tells in words why a model does not load, while the server is ready."""
    index = httpx.post(f"{server.http_url}/v2/repository/index", trust_env=False).json()
    (entry,) = [entry for entry in index if entry["name"] == model]
    assert entry["state"] == "UNAVAILABLE"
    assert reason in entry["reason"]
    assert server.is_ready()


def test_shipped_repository_serves_what_it_can(tmp_path: Path) -> None:
    """A model without its file, and one that wants a GPU, leave the others ready; a killed server leaves no process."""
    shipped = resource("model_repository")
    config = (shipped / "densenet_onnx" / "config.pbtxt").read_text()
    model = probe_models.channel_means(TensorProto.FLOAT, trailing_ones=True)
    add_model(tmp_path, "densenet_onnx", model, config).joinpath("densenet_labels.txt").touch()
    (tmp_path / "never_fetched").mkdir()
    (tmp_path / "never_fetched" / "config.pbtxt").write_text(config.replace("densenet_onnx", "never_fetched"))
    add_model(
        tmp_path, "means", probe_models.channel_means(TensorProto.FLOAT), f'backend: "onnxruntime" {MEANS} {IMAGE}'
    )
    with running_triton(tmp_path) as server, triton_grpc.InferenceServerClient(server.grpc_url) as client:
        assert client.is_model_ready("means")
        assert not client.is_model_ready("densenet_onnx")
        assert not client.is_model_ready("never_fetched")
        stubs = psutil.Process(server.pid).children(recursive=True)
        assert stubs
        server.kill()
        _, alive = psutil.wait_procs(stubs, timeout=10)
        assert not alive
