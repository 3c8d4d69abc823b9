"""Which parts a stack has, with which commands, addresses and environment: decided before anything starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tidegate.local.options import PartName, StackOptions
from tidegate.local.parts import Part, Probe, Tier
from tidegate.local.ports import LOOPBACK
from tidegate.local.readiness import ModelReported, ModelServed, NodeAnswers, PageAnswers, RedisAnswers
from tidegate.local.redis import find_redis_server, redis_command
from tidegate.local.triton import triton_command, triton_environment
from tidegate.outgoing import FETCHES, WEBHOOKS
from tidegate.settings import Settings

API_DRAIN_SECONDS = 5
"""How long the API lets requests in flight go on, long polls too; less than its grace."""
SHORT_GRACE_SECONDS = 15.0
NODE_HOST = "localhost"
OUTBOUND_QUEUES = f"{WEBHOOKS.queue},{FETCHES.queue}"
"""What goes out to hosts that clients named, and so runs in threads, apart from the batches."""
OUTBOUND_THREADS = 16
TRITON_HTTP = "triton-http"
TRITON_METRICS = "triton-metrics"

# Python looks for modules where it is started: a folder "worker" of somebody else must not be ours.
_HOME = Path(__file__).resolve().parents[2]
_PYTHON_MODULE = (sys.executable, "-m")
_CELERY = (*_PYTHON_MODULE, "celery", "-A", "worker.app")


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What the parts stand on; made before they are planned.

    Attributes:
        settings: as the parts will read them, with the addresses of this stack's Redis and Triton.
        ports: TCP port by listener, see :func:`wanted_ports`.
        model_repository: what Triton serves.
        data_dir: an existing folder for Redis.
        backends_dir: where :func:`tidegate.local.triton.prepare_backends` lays out Triton's backends.
    """

    settings: Settings
    ports: Mapping[str, int]
    model_repository: Path
    data_dir: Path
    backends_dir: Path

    @property
    def environ(self) -> dict[str, str]:
        """What a ``celery -A worker.app`` or ``tidegate`` started by hand needs to join this stack."""
        environ = {"TIDEGATE_REDIS_URL": self.settings.redis_url, "TIDEGATE_TRITON_URL": self.settings.triton_url}
        if self.settings.webhook_secret is not None:
            environ["TIDEGATE_WEBHOOK_SECRET"] = self.settings.webhook_secret.get_secret_value()
        return environ

    @property
    def part_environ(self) -> dict[str, str]:
        """The same for our own parts, whose lines are read by a person here, though not off a terminal of theirs."""
        readable = {"TIDEGATE_LOG_FORMAT": "console"} if self.settings.log_format == "auto" else {}
        return self.environ | readable

    def url(self, listener: str) -> str:
        """The HTTP address of a listener."""
        return f"http://{LOOPBACK}:{self.ports[listener]}"


def wanted_ports(options: StackOptions) -> dict[str, int]:
    """The port that was asked for by listener, 0 for any; listeners of parts that are left out are not in it."""
    by_part = {
        PartName.REDIS: {"redis": options.redis_port},
        PartName.TRITON: {"triton": options.triton_grpc_port, TRITON_HTTP: 0, TRITON_METRICS: 0},
        PartName.API: {"api": options.api_port},
        PartName.FLOWER: {"flower": options.flower_port},
    }
    return {
        listener: port
        for part, listeners in by_part.items()
        if part not in options.without
        for listener, port in listeners.items()
    }


def plan_parts(options: StackOptions, ground: Ground) -> tuple[Part, ...]:
    """The parts in the order in which a person thinks of them: what others need comes first.

    Raises:
        MissingPart: the embedded Redis or Triton cannot run on this machine.
    """
    makers: dict[PartName, Callable[[], list[Part]]] = {
        PartName.REDIS: lambda: [_redis(ground)],
        PartName.TRITON: lambda: [_triton(ground)],
        PartName.WORKER: lambda: [_worker(number, options, ground) for number in range(1, options.workers + 1)],
        PartName.OUTBOUND: lambda: [_outbound(ground)],
        PartName.API: lambda: [_api(options, ground)],
        PartName.FLOWER: lambda: [_flower(ground)],
    }
    return tuple(part for name, make in makers.items() if name not in options.without for part in make())


def _redis(ground: Ground) -> Part:
    return Part(
        name="redis",
        command=tuple(redis_command(server=find_redis_server(), port=ground.ports["redis"], data_dir=ground.data_dir)),
        tier=Tier.GROUND,
        grace_seconds=SHORT_GRACE_SECONDS,
        ready=(RedisAnswers(ground.settings),),
        advice=f"If it cannot read {ground.data_dir}, name another --data-dir. "
        "To use a Redis of your own: --without redis, and its address in TIDEGATE_REDIS_URL.",
        address=ground.settings.redis_url,
        port=ground.ports["redis"],
    )


def _triton(ground: Ground) -> Part:
    ports = ground.ports
    http_url = ground.url(TRITON_HTTP)
    return Part(
        name="triton",
        command=tuple(
            triton_command(
                backends=ground.backends_dir,
                repository=ground.model_repository,
                grpc_port=ports["triton"],
                http_port=ports[TRITON_HTTP],
                metrics_port=ports[TRITON_METRICS],
            )
        ),
        environ=triton_environment(os.environ),
        tier=Tier.GROUND,
        grace_seconds=SHORT_GRACE_SECONDS,
        ready=(PageAnswers(f"{http_url}/v2/health/ready"),),
        advice=f"Check the model repository {ground.model_repository}. "
        "To use a Triton of your own: --without triton, and its gRPC address in TIDEGATE_TRITON_URL.",
        address=ground.settings.triton_url,
        port=ports["triton"],
        also={"http": http_url, "metrics": f"{ground.url(TRITON_METRICS)}/metrics"},
    )


def _worker(number: int, options: StackOptions, ground: Ground) -> Part:
    return _celery_worker(
        f"worker-{number}",
        ["--concurrency", str(options.concurrency)],
        ground,
        ready=(ModelReported(ground.settings),),
    )


def _outbound(ground: Ground) -> Part:
    threads = str(OUTBOUND_THREADS)
    arguments = ["--queues", OUTBOUND_QUEUES, "--pool", "threads", "--concurrency", threads]
    return _celery_worker("outbound", arguments, ground)


def _celery_worker(name: str, arguments: list[str], ground: Ground, *, ready: tuple[Probe, ...] = ()) -> Part:
    node = f"{name}@{NODE_HOST}"
    return Part(
        name=name,
        command=(*_CELERY, "worker", "--hostname", node, "--task-events", *arguments),
        environ=ground.part_environ,
        cwd=_HOME,
        tier=Tier.WORKERS,
        # A batch that has just begun may take one inference deadline, and then stores its answers.
        grace_seconds=ground.settings.infer_timeout_seconds + SHORT_GRACE_SECONDS,
        ready=(NodeAnswers(ground.settings.redis_url, node), *ready),
        advice="It needs Redis and Triton: where not started here, TIDEGATE_REDIS_URL and TIDEGATE_TRITON_URL.",
    )


def _api(options: StackOptions, ground: Ground) -> Part:
    url = ground.url("api")
    # Without a worker of ours there may be no model yet: it is enough that the API lives.
    alone = PartName.WORKER in options.without
    return Part(
        name="api",
        command=(
            *_PYTHON_MODULE,
            *("uvicorn", "--factory", "api.app:create_app"),
            *("--host", LOOPBACK, "--port", str(ground.ports["api"])),
            *("--timeout-graceful-shutdown", str(API_DRAIN_SECONDS)),
            # It would print queries, in which metadata may stand.
            "--no-access-log",
        ),
        environ=ground.part_environ,
        cwd=_HOME,
        tier=Tier.FRONT,
        grace_seconds=SHORT_GRACE_SECONDS,
        ready=(PageAnswers(f"{url}/healthz"),) if alone else (PageAnswers(f"{url}/readyz"), ModelServed(url)),
        advice="It needs Redis: where that is not started here, set TIDEGATE_REDIS_URL. "
        "Another port: --api-port N (0 for any free one).",
        address=url,
        port=ground.ports["api"],
    )


def _flower(ground: Ground) -> Part:
    return Part(
        name="flower",
        command=(*_CELERY, "flower", f"--address={LOOPBACK}", f"--port={ground.ports['flower']}"),
        # Open to whoever is on this machine, which is why it listens on loopback and nowhere else.
        environ=ground.part_environ | {"FLOWER_UNAUTHENTICATED_API": "true"},
        cwd=_HOME,
        tier=Tier.FRONT,
        grace_seconds=SHORT_GRACE_SECONDS,
        ready=(PageAnswers(f"{ground.url('flower')}/healthcheck"),),
        advice="Another port: --flower-port N (0 for any free one). To do without: --without flower.",
        address=ground.url("flower"),
        port=ground.ports["flower"],
    )
