"""``python -m benchmarks.peers_http``: whole systems over HTTP, ours beside BentoML's tasks and Ray Serve's.

1,000 jobs of a model that sleeps 5.5 ms an image, from 32 clients that each submit a job, poll it every 20 ms until
it is done, and check its answer, by each system's own HTTP interface. Apart from ``make bench``, because Ray and
BentoML are large to install.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.environments import Environment
from benchmarks.http_client import BadAnswer, HttpClient, multipart
from benchmarks.peers.null_model import MODEL_SECONDS, class_of, image_of
from benchmarks.results import Result, Series
from benchmarks.rig import (
    REAL_APP,
    Program,
    bench_redis,
    bench_settings,
    running,
    running_api,
    scratch,
    url_of,
    wait_for_model,
    worker_program,
)
from benchmarks.script import Scale, run_script
from benchmarks.simulated_gpu import MAX_BATCH, GpuTimes, StubGpu
from tests.integration.server_process import free_ports
from tests.integration.stub_triton import MODEL, running_stub
from tests.integration.stub_triton import image_of as stub_image_of
from tests.integration.workers import Client
from tidegate.local.options import StackOptions

JOBS, CLIENTS = 1_000, 32
POLL_SECONDS = 0.02
MOST_SECONDS = 120.0
IMAGE_BYTES = 40_000

#: Submits the image of a number, waits for its end, and gives the class that was answered, or None.
Ask = Callable[[HttpClient, int], int | None]


@dataclass
class Campaign:
    """What the clients brought together."""

    latencies_ms: list[float] = field(default_factory=list)
    errors: int = 0
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *, latency_ms: float, right: bool) -> None:
        """Take in one job."""
        with self._lock:
            self.latencies_ms.append(latency_ms)
            self.errors += not right


def measure(scale: Scale) -> Result:
    """One system after the other, each alone on the machine."""
    systems = {"tidegate": tidegate, "bentoml": bentoml, "ray serve": ray_serve}
    jobs = scale.count(JOBS, least=100)
    campaigns = {}
    for name, system in systems.items():
        with scratch() as folder, system(folder) as (url, ask):
            # Connections, pools and lazily made clients are warm before the clock starts.
            run_clients(url, ask, CLIENTS)
            campaigns[name] = run_clients(url, ask, jobs)
    series = [
        series
        for name, campaign in campaigns.items()
        for series in (
            Series(name, "jobs/s", [jobs / campaign.seconds], jobs, campaign.errors),
            Series(name, "ms/job", campaign.latencies_ms, jobs),
        )
    ]
    ours, *others = campaigns
    figures = {
        f"http_vs_{name.replace(' ', '_')}": campaigns[name].seconds / campaigns[ours].seconds for name in others
    }
    peers = {name: Environment(name).versions() for name in ("bento", "ray_serve")}
    return Result("peers_http", series, figures, {"clients": CLIENTS, "model_ms": MODEL_SECONDS * 1000}, peers)


def run_clients(url: str, ask: Ask, jobs: int) -> Campaign:
    """Have all clients ask until that many jobs are done."""
    campaign, numbers = Campaign(), count()

    def work() -> None:
        client = HttpClient(url)
        while (number := next(numbers)) < jobs:
            started = time.monotonic()
            try:
                answer = ask(client, number)
            except BadAnswer:
                answer = None
            latency_ms = (time.monotonic() - started) * 1000
            campaign.add(latency_ms=latency_ms, right=answer == class_of(number))
        client.close()

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    started = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    campaign.seconds = time.monotonic() - started
    return campaign


def poll(client: HttpClient, path: str, is_done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Ask for a document until it says that all is done, for two minutes at most; gives the last one."""
    deadline = time.monotonic() + MOST_SECONDS
    while True:
        document = client.request("GET", path)
        if is_done(document) or time.monotonic() > deadline:
            return dict(document)
        time.sleep(POLL_SECONDS)


@contextmanager
def tidegate(folder: Path) -> Iterator[tuple[str, Ask]]:
    """API, worker and Redis as they ship, and the sleeping model in a stub of Triton."""

    def ask(client: HttpClient, number: int) -> int | None:
        image, headers = stub_image_of(class_of(number)), {"Content-Type": "image/png"}
        job = client.request("POST", f"/v1/jobs?model={MODEL}", image, headers)
        job = poll(client, job["urls"]["get"], lambda found: found["status"] not in {"queued", "running"})
        return job["result"]["predictions"][0]["class_id"] if job["status"] == "succeeded" else None

    with bench_redis(folder / "redis") as redis, running_stub(max_batch=MAX_BATCH) as stub:
        stub.behaviour = StubGpu(GpuTimes(0.0, MODEL_SECONDS * 1000))
        client = Client(bench_settings(redis, triton_url=stub.url))
        worker = worker_program(client.settings, folder, app=REAL_APP, concurrency=StackOptions().concurrency)
        with running(worker), running_api(client.settings, folder) as url:
            wait_for_model(client, MODEL)
            yield url, ask


@contextmanager
def bentoml(folder: Path) -> Iterator[tuple[str, Ask]]:
    """``bentoml serve`` with its defaults."""
    tail = bytes(IMAGE_BYTES - 1)

    def ask(client: HttpClient, number: int) -> int | None:
        body, content_type = multipart("image", [image_of(number, tail)])
        task = client.request("POST", "/classify/submit", body, {"Content-Type": content_type})
        query = f"?task_id={task['task_id']}"
        status = poll(client, f"/classify/status{query}", lambda found: found["status"] != "in_progress")
        if status["status"] != "completed":
            return None
        predictions = client.request("GET", f"/classify/get{query}")
        return int(predictions[0]["class_id"])

    def command(port: int) -> Sequence[str]:
        return ("-m", "bentoml", "serve", "benchmarks.peers.bento.service:Classifier", "--port", str(port))

    environ = {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(folder)}
    with _peer("bento", command, "/readyz", folder, environ) as url:
        yield url, ask


@contextmanager
def ray_serve(folder: Path) -> Iterator[tuple[str, Ask]]:
    """An ingress that enqueues, and one consumer."""
    tail = bytes(IMAGE_BYTES - 1)

    def ask(client: HttpClient, number: int) -> int | None:
        headers = {"Content-Type": "application/octet-stream"}
        task = client.request("POST", "/submit", image_of(number, tail), headers)
        found = poll(client, f"/status/{task['id']}", lambda found: found["status"] in {"SUCCESS", "FAILURE"})
        return int(found["result"][0]["class_id"]) if found["status"] == "SUCCESS" else None

    def command(port: int) -> Sequence[str]:
        return ("-m", "benchmarks.peers.ray_serve.run", str(port))

    with bench_redis(folder / "redis") as redis:
        environ = {"REDIS_URL": url_of(redis), "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder)}
        with _peer("ray_serve", command, "/ready", folder, environ) as url:
            yield url, ask


@contextmanager
def _peer(
    name: str, command: Callable[[int], Sequence[str]], ready: str, folder: Path, environ: dict[str, str]
) -> Iterator[str]:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    environment = Environment(name).make()
    with ExitStack() as stack:
        program = Program(
            [str(environment.python), *command(port)],
            log=folder / f"{name}.log",
            environ=environment.environ(**environ),
            ready_url=f"{url}{ready}",
        )
        program.ready_within_seconds = 120.0
        stack.enter_context(running(program))
        yield url


if __name__ == "__main__":
    run_script(measure)
