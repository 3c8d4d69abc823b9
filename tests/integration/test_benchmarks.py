"""The benchmarks' own tools: a measurement that is wrong is worse than none."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
import redis

from benchmarks.commands import monitoring
from benchmarks.contestants import Tidegate
from benchmarks.http_client import multipart, post_bytes, run_load
from benchmarks.peers.null_model import class_of, image_of, predict
from benchmarks.photos import megapixels, photo_mix
from benchmarks.questions.drain import drain_once
from benchmarks.simulated_gpu import GpuTimes, StubGpu
from tests.integration.redis_server import RedisServer
from tests.integration.stub_triton import Call


def test_drain_counts_every_job_and_checks_every_answer(own_redis: RedisServer, tmp_path: Path) -> None:
    """A small drain ends with all answers right, and an answer that is changed afterwards is found."""
    with redis.Redis.from_url(own_redis.url) as client:
        ours = Tidegate(client, tmp_path, image_bytes=1_000)
        pace = drain_once(ours, 200)
        assert 0 < pace.jobs <= 200
        assert ours.wrong() == 0
        client.hset(f"tidegate:job:{ours.ids[0]}", "result", '[{"class_id": 3}]')
        assert ours.wrong() == 1


def test_commands_inside_scripts_are_not_the_clients(own_redis: RedisServer) -> None:
    """A script counts as one command, what it calls inside as none, and the measuring client's own as none."""
    script = "for i = 1, 5 do redis.call('INCR', 'inside') end return 1"
    with redis.Redis.from_url(own_redis.url) as measuring, redis.Redis.from_url(own_redis.url) as measured:
        measured.ping()
        with monitoring(measuring) as monitor:
            monitor.mark("begin")
            measured.eval(script, 0)
            measured.set("outside", "1")
            measuring.get("outside")
            monitor.mark("end")
            count = monitor.between("begin", "end")
    assert count.inside_scripts == 5
    assert count.from_clients == 2
    assert count.by_name == {"eval": 1, "set": 1}


def test_simulated_gpu_runs_one_batch_at_a_time_and_counts_those_in_flight() -> None:
    """Three batches at once take the time of three, and all of them were in flight."""
    gpu = StubGpu(GpuTimes(base_ms=10, per_image_ms=1))
    call = Call(model="stub", size=10, datatype="UINT8", data=b"", version="", classes=(), deadline_seconds=1.0, at=0.0)
    barrier = threading.Barrier(3)

    def ask() -> None:
        barrier.wait(5)
        gpu(call, None, np.zeros((10, 16), np.float32))

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert (gpu.count.batches, gpu.count.images) == (3, 30)
    assert gpu.most_in_flight >= 2
    assert gpu.in_flight == 0


def test_gpu_times_add_up() -> None:
    """A full batch of 32 takes its base and 32 images, and the full rate follows."""
    times = GpuTimes(base_ms=4.0, per_image_ms=0.5)
    assert times.seconds(1, 32) == pytest.approx(0.020)
    assert times.full_rate == pytest.approx(1600)


def test_null_model_answers_for_the_image_that_it_saw() -> None:
    """The best class is the number that the image was made of."""
    assert [predict(image_of(number, b"tail"))[0]["class_id"] for number in range(20)] == [
        class_of(number) for number in range(20)
    ]


def test_photo_mix_has_the_sizes_it_says_and_is_the_same_each_time() -> None:
    """A photo has its size in pixels, and the same seed gives the same bytes."""
    sizes = ((500, 375), (800, 600))
    photos = photo_mix(sizes, of_each=1)
    assert [round(megapixels(photo), 4) for photo in photos] == [0.1875, 0.48]
    assert photo_mix(sizes, of_each=1) == photos


def test_load_counts_a_refusal_as_bad_and_not_as_fast() -> None:
    """An answer that is not the expected one adds to the errors and to no rate."""
    body, content_type = multipart("image", [b"photo"])
    with _refusing_server() as url:
        request = post_bytes(url, "/upload", body, content_type)
        report = run_load(url, request, connections=2, seconds=0.1, good=lambda status, _body: status == 202)
    assert report.bad > 0
    assert report.latencies_ms == []


class _Refuse(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(503)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
        """Say nothing."""


@contextmanager
def _refusing_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Refuse)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()
