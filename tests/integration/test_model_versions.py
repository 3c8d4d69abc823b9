"""Versions of a model that come and go under traffic, at the real Triton: nothing is mixed and nothing is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
import tritonclient.grpc as triton_grpc

from tests.integration.quadrant_probe import Variant, expected_logits, quarters
from tests.integration.redis_server import running_redis
from tests.integration.triton_server import TritonServer, running_triton
from tests.integration.workers import Client, quick_settings, running_worker
from tidegate.jobs import JobRecord, State

PROBE = Variant(datatype="UINT8")
#: Version ``n`` answers ``n`` times the logits of the first.
IMAGE = quarters([(250, 15, 118), (180, 60, 205), (95, 225, 35), (140, 160, 75)])
BEST_LOGIT = float(expected_logits(IMAGE).max())


@dataclass
class Stage:
    """A Triton, a worker on it and a client, and the repository's folder."""

    triton: TritonServer
    client: Client
    repository: Path

    def submit(self, count: int, *, model: str = "probe", version: str | None = None) -> list[str]:
        """Jobs of the one image."""
        return self.client.submit(model, [IMAGE] * count, version=version)

    def add_version(self, version: int, *, model: str = "probe") -> None:
        """Put another version into the repository; Triton has it once it is told to load the model."""
        folder = self.repository / model / str(version)
        folder.mkdir()
        onnx.save(PROBE.model(gain=float(version)), folder / "model.onnx")

    @contextmanager
    def control(self) -> Iterator[triton_grpc.InferenceServerClient]:
        """Triton's model control."""
        with triton_grpc.InferenceServerClient(self.triton.grpc_url) as control:
            yield control


@pytest.fixture
def stage(redis_program: Path, tmp_path: Path) -> Iterator[Stage]:
    """One version of ``probe``, and ``both``, which serves every version it has."""
    repository = tmp_path / "repository"
    PROBE.add_to(repository, "probe")
    folder = PROBE.add_to(repository, "both")
    with (folder / "config.pbtxt").open("a") as config:
        config.write("version_policy { all { } }\n")
    (tmp_path / "redis").mkdir()
    with running_redis(tmp_path / "redis") as redis, running_triton(repository) as triton:
        settings = quick_settings(redis.url, triton.grpc_url, version_wait_seconds=3)
        with closing(Client(settings)) as client, running_worker(settings, tmp_path, concurrency=2):
            client.wait_for_model("probe")
            client.wait_for_model("both")
            yield Stage(triton, client, repository)


def check(jobs: list[JobRecord], versions: set[str]) -> None:
    """Each result names a version of these, and has that version's scores."""
    assert [(job.state, job.error) for job in jobs] == [(State.SUCCEEDED, None)] * len(jobs)
    for job in jobs:
        assert job.result is not None
        assert job.result[0]["logit"] == pytest.approx(BEST_LOGIT * int(job.run["model_version"]), rel=1e-3)
    assert {job.run["model_version"] for job in jobs} == versions


def test_version_that_is_loaded_under_traffic_mixes_nothing(stage: Stage) -> None:
    """While jobs stream in, the second version takes the first one's place: every job is answered whole by one."""
    stage.add_version(2)
    ids: list[str] = []
    with stage.control() as control:
        loading = threading.Thread(target=control.load_model, args=("probe",))
        loading.start()
        after = 0
        while after < 5:
            after += not loading.is_alive()
            ids += stage.submit(4)
            time.sleep(0.05)
        loading.join()
    check(stage.client.wait_for_end(ids), {"1", "2"})
    assert {stage.client.job(job_id).attempts for job_id in ids} == {1}


def test_model_that_is_unloaded_and_loaded_again_loses_nothing(stage: Stage) -> None:
    """Jobs of a model that goes under traffic wait for its return; no attempt is spent, and nobody else waits."""
    ids = stage.submit(40)
    with stage.control() as control:
        control.unload_model("probe")
        ids += stage.submit(20)
        stage.client.wait_for_model("probe", ready=False)
        ids += stage.submit(20)
        others = stage.submit(8, model="both")
        check(stage.client.wait_for_end(others), {"1"})
        assert any(not stage.client.job(job_id).state.terminal for job_id in ids)
        control.load_model("probe")
        check(stage.client.wait_for_end(ids), {"1"})
    assert {stage.client.job(job_id).attempts for job_id in ids} == {1}


def test_jobs_of_two_versions_share_a_queue_and_not_a_call(stage: Stage) -> None:
    """Named versions answer for themselves, and a job that names none gets the newest."""
    stage.add_version(2, model="both")
    with stage.control() as control:
        control.load_model("both")
    pinned: dict[str, list[str]] = {"1": [], "2": []}
    free: list[str] = []
    for _ in range(10):
        for version in pinned:
            pinned[version] += stage.submit(2, model="both", version=version)
        free += stage.submit(2, model="both")
    for version, ids in pinned.items():
        check(stage.client.wait_for_end(ids), {version})
    check(stage.client.wait_for_end(free), {"2"})


def test_named_version_that_was_replaced_fails_within_its_window(stage: Stage) -> None:
    """The first version is gone for good: whoever names it fails as model_not_available, soon and by one attempt."""
    stage.add_version(2)
    with stage.control() as control:
        control.load_model("probe")
    began = time.monotonic()
    old = stage.submit(3, version="1")
    for job in stage.client.wait_for_end(old):
        assert (job.state, (job.error or {})["code"]) == (State.FAILED, "model_not_available")
        assert "version 1" in (job.error or {})["message"]
    assert time.monotonic() - began >= 3
    check(stage.client.wait_for_end(stage.submit(3)), {"2"})
