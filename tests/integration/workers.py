"""Real Celery workers for a test, and the little that a client of theirs needs: submit, and wait for the end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
from pydantic import SecretStr

from tests.integration.server_process import ServerProcess
from tidegate.catalogue import read_catalogue
from tidegate.jobs import JobRecord, NewJob, new_job_id
from tidegate.ledger import Ledger
from tidegate.settings import Settings, load_settings
from tidegate.store import connect
from tidegate.tickets import TicketOffice


def wait_until(condition: Callable[[], Any], *, seconds: float = 30.0, what: str = "") -> Any:
    """Wait for a condition to become true, and give its value; fails when the time is over."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"after {seconds:g} s still not: {what or condition}"
        time.sleep(0.02)


class Worker(ServerProcess):
    """One ``celery -A worker.app worker``, in a process group of its own."""

    stop_within_seconds = 30.0

    def __init__(self, node: str, arguments: Sequence[str], *, app: str, log: Path, environ: Mapping[str, str]) -> None:
        self.node = node
        command = [
            sys.executable, "-m", "celery", "-A", app, "worker", "-E", "--without-gossip", "--without-mingle",
            "-n", node, "--loglevel", "INFO", *arguments,
        ]  # fmt: skip
        super().__init__(command, log=log, environ=environ)

    def is_ready(self) -> bool:
        """Whether it says so in its log; its models are another matter."""
        return f"{self.node} ready" in self.log.read_text(errors="replace")

    def children(self) -> list[psutil.Process]:
        """The pool's processes."""
        return [child for child in psutil.Process(self.pid).children(recursive=True) if _lives(child)]

    def kill_tree(self) -> None:
        """End it and all its children at once, as a lost machine does."""
        processes = [*self.children(), psutil.Process(self.pid)]
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        psutil.wait_procs(processes, timeout=10)
        self.kill()


def _lives(process: psutil.Process) -> bool:
    """Whether it has not ended, which it may at any moment."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def environment(settings: Settings) -> dict[str, str]:
    """The environment in which another process has these very settings."""
    mine = {key: value for key, value in os.environ.items() if not key.startswith("TIDEGATE_")}
    changed = settings.model_dump(mode="json", exclude_defaults=True)
    texts = {name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in changed.items()}
    for name in changed:
        if isinstance(secret := getattr(settings, name), SecretStr):
            texts[name] = secret.get_secret_value()
    return mine | {f"TIDEGATE_{name.upper()}": text for name, text in texts.items()}


@contextmanager
def running_worker(
    settings: Settings,
    tmp_path: Path,
    *,
    name: str = "w1",
    concurrency: int = 1,
    extra: Sequence[str] = (),
    app: str = "worker.app",
    environ: Mapping[str, str] | None = None,
) -> Iterator[Worker]:
    """Run a worker while the block runs.

    Args:
        settings: that it starts with.
        tmp_path: an existing folder, for its log.
        name: of its node, before ``@test``.
        concurrency: how many children it has.
        extra: more options of ``celery worker``.
        app: the module of its Celery app.
        environ: more variables for its environment.
    """
    worker = Worker(
        f"{name}@test",
        ["-c", str(concurrency), *extra],
        app=app,
        log=tmp_path / f"{name}.log",
        environ={**environment(settings), **(environ or {})},
    )
    try:
        yield worker.start()
    except BaseException:
        print(worker.log.read_text(errors="replace")[-8000:])
        raise
    finally:
        worker.stop()


class Client:
    """What the API does, without HTTP: jobs into the ledger, tickets into the broker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.redis = connect(settings)
        self.ledger = Ledger(self.redis, settings)
        self.office = TicketOffice(self.redis)

    def wait_for_model(self, model: str, *, ready: bool = True, seconds: float = 30.0) -> None:
        """Wait until the workers report the model."""

        def reported() -> bool:
            entry = read_catalogue(self.redis, self.settings).get(model)
            return entry is not None and entry.ready is ready

        wait_until(reported, seconds=seconds, what=f"{model} ready={ready}")

    def submit(self, model: str, images: Sequence[bytes], *, tickets: bool = True, **options: Any) -> list[str]:
        """Accept jobs and issue their tickets; gives their ids."""
        jobs = [NewJob(id=new_job_id(), model=model, image=image, **options) for image in images]
        admissions = self.ledger.run(self.ledger.commands.accept(jobs))
        if tickets:
            self.office.issue([admission.ticket for admission in admissions if admission.ticket])
        return [job.id for job in jobs]

    def job(self, job_id: str) -> JobRecord:
        """One job as it stands."""
        record = self.ledger.get(job_id)
        assert record is not None
        return record

    def wait_for_end(self, job_ids: Sequence[str], *, seconds: float = 60.0) -> list[JobRecord]:
        """Wait until every job has ended."""
        open_ids = set(job_ids)

        def ended() -> bool:
            open_ids.difference_update({job_id for job_id in open_ids if self.job(job_id).state.terminal})
            return not open_ids

        wait_until(ended, seconds=seconds, what=f"end of {len(job_ids)} jobs")
        return [self.job(job_id) for job_id in job_ids]

    def close(self) -> None:
        """Close every connection."""
        self.redis.close()


def quick_settings(redis_url: str, triton_url: str, **overrides: Any) -> Settings:
    """Settings for a test: quick to notice, quick to sweep."""
    quick: Mapping[str, Any] = {"model_poll_seconds": 0.3, "sweep_seconds": 1.0, "log_format": "console"}
    return load_settings({}, redis_url=redis_url, triton_url=triton_url, **{**quick, **overrides})
