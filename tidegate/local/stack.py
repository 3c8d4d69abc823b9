"""The embedded stack as a whole: Redis, Triton, workers, API and Flower on loopback, for as long as a session lasts."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.local import resource
from tidegate.local.models import efficientnet_lite0
from tidegate.local.options import PartName, StackOptions
from tidegate.local.parts import Part, PartFailed
from tidegate.local.plan import Ground, plan_parts, wanted_ports
from tidegate.local.ports import LOOPBACK, PortTaken, claim_ports
from tidegate.local.readiness import await_ready
from tidegate.local.status import describe
from tidegate.local.supervise import Supervisor
from tidegate.local.triton import prepare_backends
from tidegate.settings import Settings, load_settings
from tidegate.webhooks.signing import new_secret


@dataclass(frozen=True)
class RunningStack:
    """A stack whose parts are all up; what a session gets.

    Attributes:
        parts: those that run, in the order in which they depend on each other.
        environ: what a program started by hand needs to join.
    """

    parts: tuple[Part, ...]
    environ: Mapping[str, str]
    _supervisor: Supervisor

    @property
    def addresses(self) -> dict[str, str]:
        """Where parts are reached, by name; those that only call others are not in it."""
        return {part.name: part.address for part in self.parts if part.address}

    def status(self) -> dict[str, object]:
        """What the status file says about it."""
        return describe(self.parts, pid=self._supervisor.pid, environ=self.environ)

    def pause(self, seconds: float) -> None:
        """Sleep; leaves the session when the stack ends meanwhile."""
        self._supervisor.pause(seconds)

    def serve(self) -> None:
        """Print what the parts print until a signal comes or a part ends, which leaves the session."""
        self._supervisor.relay()
        while True:
            self._supervisor.pause(60)


@dataclass(frozen=True)
class Ending:
    """How a stack came to its end, when nothing was wrong with it.

    Attributes:
        stopped_by: the signal that asked for it; None when the session was over.
        was_ready: whether the session had begun.
    """

    stopped_by: signal.Signals | None
    was_ready: bool


def run_stack(options: StackOptions, session: Callable[[RunningStack], None]) -> Ending:
    """Start a stack, run ``session`` once it is ready, and leave no process behind however that ends.

    Must be called in the main thread.

    Raises:
        PartFailed: a part could not start, was not ready in time, or died.
        MissingPart: the embedded Redis or Triton cannot run on this machine.
        SettingsError: a ``TIDEGATE_`` variable is wrong.
        Exception: what ``session`` raised.
    """
    was_ready = False
    with tempfile.TemporaryDirectory(prefix="tidegate-") as workspace:
        ground = _prepare(options, Path(workspace))
        parts = plan_parts(options, ground)
        supervisor = Supervisor(parts)

        def conduct() -> None:
            nonlocal was_ready
            await_ready(parts, timeout_seconds=options.timeout_seconds, pause=supervisor.pause)
            was_ready = True
            session(RunningStack(parts, ground.environ, supervisor))

        supervisor.run(conduct)
    return Ending(supervisor.stopped_by, was_ready)


def _prepare(options: StackOptions, workspace: Path) -> Ground:
    """Make what the parts stand on."""
    ports = _claim_ports(options)
    data_dir = options.data_dir or workspace / "redis"
    data_dir.mkdir(parents=True, exist_ok=True)
    backends_dir = workspace / "backends"
    if PartName.TRITON not in options.without:
        prepare_backends(backends_dir)
        if options.model_repository is None:
            efficientnet_lite0.build(resource("model_repository"))
    return Ground(
        settings=_settings(ports),
        ports=ports,
        model_repository=options.model_repository or resource("model_repository"),
        data_dir=data_dir,
        backends_dir=backends_dir,
    )


def _settings(ports: Mapping[str, int]) -> Settings:
    """The environment's, with this stack's addresses, and a secret for webhooks where there is none."""
    settings = load_settings(**_addresses(ports))
    if settings.webhook_secret is None:
        settings = load_settings(**_addresses(ports), webhook_secret=new_secret())
    return settings


def _claim_ports(options: StackOptions) -> dict[str, int]:
    try:
        return claim_ports(wanted_ports(options))
    except PortTaken as error:
        option = "--triton-grpc-port" if error.name == PartName.TRITON else f"--{error.name}-port"
        raise PartFailed(
            error.name,
            f"{error.name} cannot start: {error}",
            advice=f"End what listens on {LOOPBACK}:{error.port}, or choose another with {option} (0: any free one).",
        ) from error


def _addresses(ports: Mapping[str, int]) -> dict[str, Any]:
    """The settings that this stack's own Redis and Triton decide."""
    addresses: dict[str, Any] = {}
    if PartName.REDIS in ports:
        addresses["redis_url"] = f"redis://{LOOPBACK}:{ports[PartName.REDIS]}/0"
    if PartName.TRITON in ports:
        addresses["triton_url"] = f"{LOOPBACK}:{ports[PartName.TRITON]}"
    return addresses
