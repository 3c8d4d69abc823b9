"""10,000 webhooks to one receiver on the same machine, and 500 to one that comes back after a minute.

The receiver checks every signature. The first part lifts the limits per host, which are there to slow this down; the
second has those that ship, and the pauses: what was tried often meanwhile is due only minutes after the host is back.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil

from benchmarks.pace import wait_for
from benchmarks.results import Result, Series
from benchmarks.rig import REAL_APP, Program, bench_redis, bench_settings, running, scratch
from benchmarks.script import Scale, run_script
from tests.integration.ledger_probe import success
from tests.integration.server_process import free_ports
from tests.integration.workers import Client, environment
from tidegate.jobs import Destination, NewJob, Webhook, new_job_id
from tidegate.local.readiness import NodeAnswers
from tidegate.settings import Settings
from tidegate.webhooks.signing import new_secret

DELIVERIES, DELIVERIES_TO_A_DEAD_HOST = 10_000, 500
DEAD_SECONDS, WATCH_SECONDS = 60.0, 60.0
THREADS = 16
NODE = "outbound@bench"
#: Jobs that are ended in one script.
GROUP = 100
SECRET = new_secret()
OPEN = {"webhook_secret": SECRET, "outbound_allow": "127.0.0.1", "outbound_ports": "1-65535"}
UNLIMITED = {"outbound_host_connections": THREADS, "outbound_host_rate": 1_000_000}
LONGEST_SECONDS = 200.0


def measure(scale: Scale) -> Result:
    """Both parts."""
    count = scale.count(DELIVERIES, least=200)
    rate, cpu_ms, wrong = flood(count)
    dead_seconds = scale.seconds(DEAD_SECONDS, least=5)
    storm = come_back(scale.count(DELIVERIES_TO_A_DEAD_HOST, least=50), dead_seconds)
    peak = float(storm["most_in_a_second"])
    series = [
        Series("one receiver", "webhooks/s", [rate], count, wrong),
        Series("one receiver", "ms of processor a webhook", [cpu_ms], count),
        Series("a host that comes back", "most in one second", [peak], storm["requests"], storm["wrong"]),
        Series("a host that comes back", f"webhooks in its first {WATCH_SECONDS:g} s", [storm["ids"]], storm["ids"]),
    ]
    figures = {"webhooks_per_second": rate, "webhook_cpu_ms": cpu_ms, "webhook_storm_per_second": peak}
    limit = Settings().outbound_host_rate
    conditions = {"threads": THREADS, "dead_seconds": dead_seconds, "most_in_one_second_allowed": limit}
    return Result("webhooks", series, figures, conditions)


def flood(count: int) -> tuple[float, float, int]:
    """Deliver as fast as it goes; gives webhooks a second, processor ms each, and how many went wrong."""
    (port,) = free_ports(1)
    with outbound(**UNLIMITED) as (client, worker, folder), running(receiver(port, folder)) as server:
        # It must be up before the work is there, and not begin before all of it is.
        answers = NodeAnswers(client.settings.redis_url, NODE)
        wait_for(lambda: answers() is None, seconds=60, what="the worker is ready")
        worker.pause()
        end_jobs(client, count, port)
        process = psutil.Process(worker.pid)
        before = sum(process.cpu_times()[:2])
        worker.resume()
        told = wait_until_told(server, port, count)
        cpu_ms = (sum(process.cpu_times()[:2]) - before) * 1000 / count
    wrong = told["wrong"] + (count - told["ids"]) + (told["requests"] - told["ids"])
    return count / (told["last"] - told["first"]), cpu_ms, wrong


def come_back(count: int, dead_seconds: float) -> dict[str, Any]:
    """Deliver to nobody for a while, and then to a receiver; gives what it tells after a minute."""
    (port,) = free_ports(1)
    with outbound() as (client, _, folder):
        end_jobs(client, count, port)
        time.sleep(dead_seconds)
        with running(receiver(port, folder)):
            time.sleep(WATCH_SECONDS)
            return ask(port)


@contextmanager
def outbound(**settings: Any) -> Iterator[tuple[Client, Program, Path]]:
    """A Redis and an outbound worker."""
    with scratch() as folder, bench_redis(folder / "redis") as redis:
        client = Client(bench_settings(redis, **{**OPEN, **settings}))
        command = [sys.executable, "-m", "celery", "-A", REAL_APP, "worker", "-n", NODE]
        command += ["--queues", "webhooks", "--pool", "threads", "-c", str(THREADS)]
        environ = {**environment(client.settings), "TIDEGATE_LOG_LEVEL": "WARNING"}
        worker = Program(command, log=folder / "outbound.log", environ=environ)
        with running(worker):
            yield client, worker, folder
        client.close()


def receiver(port: int, folder: Path) -> Program:
    """A receiver in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.apps.webhook_receiver", str(port)]
    environ: Mapping[str, str] = {**os.environ, "WEBHOOK_SECRET": SECRET}
    url = f"http://127.0.0.1:{port}/"
    return Program(command, log=folder / "receiver.log", environ=environ, ready_url=url)


def end_jobs(client: Client, count: int, port: int) -> None:
    """End so many jobs whose ends are to be told at that port."""
    commands = client.ledger.commands
    host = f"127.0.0.1:{port}"
    for start in range(0, count, GROUP):
        jobs = [_job(host) for _ in range(min(GROUP, count - start))]
        ids = [job.id for job in jobs]
        client.ledger.run(commands.accept(jobs))
        client.ledger.run(commands.claim("bench", ids))
        client.ledger.run(commands.complete("bench", [success(job_id) for job_id in ids]))


def _job(host: str) -> NewJob:
    job_id = new_job_id()
    webhook = Webhook(Destination(f"http://{host}/hook", host), f"/v1/jobs/{job_id}")
    return NewJob(id=job_id, model="m", image=b"image", webhook=webhook)


def wait_until_told(server: Program, port: int, count: int) -> dict[str, Any]:
    """What the receiver tells once every id has come."""
    told: dict[str, Any] = {}

    def all_there() -> bool:
        assert server.running
        told.update(ask(port))
        return bool(told["ids"] >= count)

    wait_for(all_there, seconds=LONGEST_SECONDS, what=f"{count} webhooks have come")
    return told


def ask(port: int) -> dict[str, Any]:
    """What the receiver tells now."""
    told: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False, timeout=30).json()
    return told


if __name__ == "__main__":
    run_script(measure)
