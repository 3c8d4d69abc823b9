"""A model server that does not answer: work stops, nobody storms it, and everything runs again once it is back."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.integration.rig import Rig, running_rig
from tests.integration.server_process import free_ports
from tests.integration.stub_triton import MODEL, Call, StubTriton, image_of, running_stub
from tests.integration.workers import running_worker, wait_until
from tidegate.catalogue import read_catalogue
from tidegate.jobs import JobRecord, State

#: What the issue promises: a storm is this many questions a second, all workers together, and recovery takes no longer.
STORM_PER_SECOND = 3.0
RECOVERY_SECONDS = 10.0
#: After so long no test still waits: what a sweep would mend then has been mended without one.
NO_SWEEP_SECONDS = 300.0


@pytest.fixture
def rig(redis_program: Path, tmp_path: Path) -> Iterator[Rig]:
    """A rig with the default pace of looks at the models, and short calls."""
    with running_rig(
        tmp_path, infer_timeout_seconds=1, probe_timeout_seconds=1, model_poll_seconds=2, sweep_seconds=5
    ) as rig:
        yield rig


def classes_of(jobs: list[JobRecord]) -> list[int]:
    """The winning class of each job."""
    return [job.result[0]["class_id"] if job.result else -1 for job in jobs]


def questions_a_second(stub: StubTriton, since: float) -> float:
    """How often the server was asked which models it has."""
    return sum(at >= since for at in stub.probed_at) / (time.monotonic() - since)


def test_frozen_server_spends_no_attempts_and_sees_no_storm(rig: Rig) -> None:
    """It takes connections and answers nothing: jobs wait in Redis, three workers ask now and then, and all recover."""
    with ExitStack() as workers:
        for number in range(3):
            workers.enter_context(rig.worker(f"w{number}", concurrency=2))
        rig.stub.frozen.set()
        frozen = time.monotonic()
        ids = rig.client.submit(MODEL, [image_of(index % 16) for index in range(60)])
        rig.client.wait_for_model(MODEL, ready=False)
        wait_until(lambda: rig.client.redis.zcard("tidegate:running:stub") == 0, what="nothing running")
        calls = len(rig.stub.calls)
        wait_until(lambda: time.monotonic() - frozen > 15, what="the fault itself")
        assert questions_a_second(rig.stub, frozen) < STORM_PER_SECOND
        assert len(rig.stub.calls) == calls, "nobody tries with jobs"
        rig.stub.frozen.clear()
        jobs = rig.client.wait_for_end(ids, seconds=RECOVERY_SECONDS)
    assert classes_of(jobs) == [index % 16 for index in range(60)]
    assert {job.attempts for job in jobs} == {1}


def test_worker_that_lost_its_own_way_leaves_the_work_to_others(rig: Rig) -> None:
    """While one worker cannot reach Triton the catalogue stays as others see it, and it burns few batches."""
    other = rig.settings.model_copy(update={"triton_url": f"127.0.0.1:{free_ports(1)[0]}"})
    with running_worker(other, rig.tmp_path, name="lost", concurrency=2) as lost, rig.worker("w1"):
        began = time.monotonic()
        ids: list[str] = []
        while time.monotonic() - began < 12:
            ids += rig.client.submit(MODEL, [image_of(index) for index in range(16)])
            assert read_catalogue(rig.client.redis, rig.settings)[MODEL].ready
            rig.client.wait_for_end(ids)
        outages = lost.log.read_text().count("model.outage")
        jobs = rig.client.wait_for_end(ids)
        assert outages <= 4, "each costs the jobs of a batch a pause"
        assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}


def test_worker_whose_way_is_mended_takes_part_again(rig: Rig) -> None:
    """Its own Triton comes back while the catalogue never said that it was away: it recovers all the same."""
    # The other, once it is paused, may still be handed tickets, for which a sweep makes up.
    rig.settings = rig.settings.model_copy(update={"sweep_seconds": 1, "model_poll_seconds": 0.5})
    with running_stub() as own:
        mine = rig.settings.model_copy(update={"triton_url": own.url})
        with rig.worker("w1") as first, running_worker(mine, rig.tmp_path, name="w2") as second:
            own.stop()
            wait_until(lambda: _outage_seen(rig, second.log), what="an outage")
            own.start()
            first.pause()
            try:
                jobs = rig.client.wait_for_end(
                    rig.client.submit(MODEL, [image_of(index) for index in range(8)]), seconds=RECOVERY_SECONDS
                )
            finally:
                first.resume()
        assert classes_of(jobs) == list(range(8))


def _outage_seen(rig: Rig, log: Path) -> bool:
    rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(1)] * 4))
    return "model.outage" in log.read_text()


def test_jobs_of_a_fresh_child_do_not_wait_for_a_sweep(rig: Rig) -> None:
    """A child that never saw the model meets the outage first: its tickets are used up, and replaced at once."""
    rig.settings = rig.settings.model_copy(
        update={"sweep_seconds": NO_SWEEP_SECONDS, "lease_seconds": NO_SWEEP_SECONDS}
    )
    with rig.worker() as worker:
        rig.stub.stop()
        (child,) = worker.children()
        child.kill()
        wait_until(lambda: [one for one in worker.children() if one.pid != child.pid], what="another child")
        ids = rig.client.submit(MODEL, [image_of(index) for index in range(8)])
        wait_until(lambda: "model.outage" in worker.log.read_text(), what="the outage")
        rig.stub.start()
        jobs = rig.client.wait_for_end(ids)
    assert {(job.state, job.attempts) for job in jobs} == {(State.SUCCEEDED, 1)}


@pytest.mark.parametrize("how", ["fails", "hangs"])
def test_input_that_breaks_its_batch_breaks_it_once(rig: Rig, how: str) -> None:
    """One input makes the model fail or hang: its neighbours run without it the next time, and succeed."""
    stuck = threading.Event()

    def poisoned(call: Call, context: Any, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if 5 in call.classes:
            if how == "fails":
                context.abort(grpc.StatusCode.INTERNAL, "CUDA error")
            stuck.wait(20)
        return scores

    rig.stub.behaviour = poisoned
    with rig.worker():
        jobs = rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index) for index in range(8)]))
        assert read_catalogue(rig.client.redis, rig.settings)[MODEL].ready, "the server lives, and so does the model"
    stuck.set()
    assert classes_of(jobs) == [0, 1, 2, 3, 4, -1, 6, 7]
    assert [job.attempts for job in jobs] == [2, 2, 2, 2, 2, 3, 2, 2]
    assert (jobs[5].error or {})["code"] == ("model_failed" if how == "fails" else "inference_timeout")
    assert rig.stub.sizes == [8] + [1] * 9


def test_every_question_to_the_server_has_a_deadline(rig: Rig) -> None:
    """Whatever is asked of it, on whichever occasion, the server is told how long anybody will wait."""
    with rig.worker():
        rig.client.wait_for_end(rig.client.submit(MODEL, [image_of(index) for index in range(8)]))
        rig.stub.frozen.set()
        ids = rig.client.submit(MODEL, [image_of(1)])
        rig.client.wait_for_model(MODEL, ready=False)
        rig.stub.frozen.clear()
        rig.client.wait_for_end(ids)
    methods = {method for method, _ in rig.stub.deadlines}
    assert {"RepositoryIndex", "ModelConfig", "ModelMetadata", "ModelInfer", "ServerLive"} <= methods
    without = {method for method, seconds in rig.stub.deadlines if seconds is None or seconds > 1.1}
    assert without == set()
