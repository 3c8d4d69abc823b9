"""The same worker at another server of the Open Inference Protocol: MLServer, as it comes from its makers."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.integration.classifying import classifier
from tests.integration.mlserver import NEWEST_PYTHON, MlServer, add_quadrants, find_mlserver, running_mlserver
from tests.integration.quadrant_probe import LABELS, expected_logits, quarters
from tests.integration.redis_server import running_redis
from tests.integration.workers import Client, quick_settings, running_worker
from tidegate.catalogue import ModelState, read_catalogue
from tidegate.declarations import ModelDeclaration
from tidegate.errors import ModelNotAvailable
from tidegate.jobs import State
from tidegate.local import MissingPart

IMAGES = [
    quarters([(250, 15, 118), (180, 60, 205), (95, 225, 35), (140, 160, 75)]),
    quarters([(20, 100, 180), (240, 120, 40), (60, 0, 210), (160, 140, 80)]),
]
DECLARED = ModelDeclaration(labels=LABELS, batch_limit=4, parameters={"scores": "logits"})
#: MLServer makes its environment when CI runs the first of these tests, which takes a minute or two.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLServer's models: one with a version, one without, one in two versions, one with large images, a broken one."""
    folder = tmp_path_factory.mktemp("mlserver")
    add_quadrants(folder, "quadrants")
    add_quadrants(folder, "unversioned", versions=())
    add_quadrants(folder, "twice", versions=("1", "2"))
    add_quadrants(folder, "large", side=512)
    add_quadrants(folder, "untold", inputs=[], outputs=[])
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[MlServer]:
    """One MLServer for all. Where there is none: a skip at home, and in CI a failure, if this Python can run it."""
    try:
        find_mlserver()
    except MissingPart as missing:
        if os.environ.get("CI") == "true" and sys.version_info[:2] <= NEWEST_PYTHON:
            raise
        pytest.skip(str(missing))
    with running_mlserver(folder) as server:
        yield server


@contextmanager
def worker_at(server: MlServer, tmp_path: Path, models: dict[str, ModelDeclaration]) -> Iterator[Client]:
    """A client of a real worker whose Triton is this MLServer."""
    with running_redis(tmp_path) as redis:
        settings = quick_settings(redis.url, server.grpc_url, models=models, version_wait_seconds=2)
        with closing(Client(settings)) as client, running_worker(settings, tmp_path):
            client.wait_for_model("quadrants")
            yield client


def test_worker_serves_a_model_of_mlserver(server: MlServer, redis_program: Path, tmp_path: Path) -> None:
    """Names, scores, batches and versions are right with what a declaration says; the rest is read from MLServer."""
    with worker_at(server, tmp_path, {"quadrants": DECLARED}) as client:
        jobs = client.wait_for_end(client.submit("quadrants", IMAGES * 8, top_k=12))
        catalogue = read_catalogue(client.redis, client.settings)
        others = [client.wait_for_end(client.submit(name, IMAGES[:1]))[0] for name in ("unversioned", "twice")]
        absent = client.submit("quadrants", IMAGES[:1], version="7")
        (failed,) = client.wait_for_end(absent)
    for image, job in zip(IMAGES * 8, jobs, strict=True):
        assert job.result is not None, job.error
        logits = expected_logits(image)
        assert {found["class_name"]: found["logit"] for found in job.result} == pytest.approx(
            dict(zip(LABELS, logits, strict=True)), abs=1e-4
        )
    assert max(job.run["batch_size"] for job in jobs) == 4
    assert {job.run["model_version"] for job in jobs} == {"1"}
    assert (catalogue["quadrants"].versions, catalogue["quadrants"].input) == (("1",), "FP32 [3, 32, 32] NCHW")
    assert catalogue["twice"].versions == ("1", "2")
    assert catalogue["untold"].state is ModelState.BROKEN
    assert catalogue["untold"].reason == "model untold has 0 inputs (none), not one that takes an image"
    assert [(job.state, job.result and job.result[0]["class_name"]) for job in others] == [(State.SUCCEEDED, None)] * 2
    assert (failed.state, (failed.error or {})["code"]) == (State.FAILED, "model_not_available")


def test_jobs_wait_while_mlserver_is_away(server: MlServer, redis_program: Path, tmp_path: Path) -> None:
    """A server that is stopped and started again costs no job, and none an attempt."""
    with worker_at(server, tmp_path, {"quadrants": DECLARED}) as client:
        server.stop()
        ids = client.submit("quadrants", IMAGES * 4)
        client.wait_for_model("quadrants", ready=False)
        server.start()
        jobs = client.wait_for_end(ids)
    assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}


@pytest.mark.parametrize("version", ["1", "2"])
def test_named_version_answers_at_mlserver(server: MlServer, version: str) -> None:
    """The version goes along with the call."""
    with classifier(server.grpc_url, "twice", models={"twice": DECLARED}) as model:
        (answer,) = model.classify(IMAGES[:1], version=version)
        with pytest.raises(ModelNotAvailable):
            model.classify(IMAGES[:1], version="3")
    assert answer[0]["logit"] == pytest.approx(expected_logits(IMAGES[0]).max() * int(version), abs=1e-4)


@pytest.mark.parametrize("max_call_bytes", [64 * 1024**2, 4_000_000], ids=["unknown", "known"])
def test_messages_beyond_mlservers_limit_are_halved(server: MlServer, max_call_bytes: int) -> None:
    """MLServer takes 4 MiB a message; images of 3 MiB each reach it one by one, whether we were told or not."""
    with classifier(server.grpc_url, "large", max_call_bytes=max_call_bytes, max_image_bytes=2**21) as model:
        answers = model.classify(IMAGES * 3)
    best = [max(predictions, key=lambda found: found["score"])["class_id"] for predictions in answers]
    assert best == [int(expected_logits(image).argmax()) for image in IMAGES * 3]


def test_tensors_that_mlserver_does_not_tell_can_be_declared(server: MlServer) -> None:
    """A model whose settings leave its tensors out is served once a person says what they are."""
    declared = ModelDeclaration.model_validate(
        {
            "input": {"name": "image", "datatype": "FP32", "shape": [-1, 3, 32, 32]},
            "output": {"name": "scores", "datatype": "FP32", "shape": [-1, 12]},
            "labels": LABELS,
        }
    )
    with classifier(server.grpc_url, "untold", models={"untold": declared}) as model:
        (answer,) = model.classify(IMAGES[:1])
    assert answer[0]["class_name"] == LABELS[int(expected_logits(IMAGES[0]).argmax())]
