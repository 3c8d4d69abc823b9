"""The supervisor, with tiny programs in the place of Redis, Triton and the rest."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tidegate.local.parts import Part, PartFailed, Tier
from tidegate.local.processes import KEPT_LINES
from tidegate.local.supervise import Supervisor

# From Python 3.12 on, a fork beside other threads warns; the test run has some, the supervisor has not yet.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

SLEEP = ("sleep", "60")


def part(name: str, *command: str, tier: Tier = Tier.GROUND, grace_seconds: float = 10) -> Part:
    """A part that nobody waits for."""
    return Part(name=name, command=command, tier=tier, grace_seconds=grace_seconds, ready=(), advice=f"mend {name}")


def shell(script: str) -> tuple[str, ...]:
    """A command that runs a few lines of shell."""
    return ("sh", "-c", script)


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Return as soon as something is so."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.02)


def pid_in(file: Path) -> int:
    """The process id that a part writes to a file, once it has."""
    wait_for(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


class NobodyReads(io.StringIO):
    """An output whose reader is gone."""

    def write(self, _text: str) -> int:
        """Fail, as a pipe does."""
        raise BrokenPipeError


def has_ended(pid: int) -> bool:
    """Whether a process is over, be it that nobody has reaped it yet."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def run_until(supervisor: Supervisor, condition: Callable[[], bool]) -> None:
    """Run a stack until something is so."""

    def session() -> None:
        while not condition():
            supervisor.pause(0.02)

    supervisor.run(session)


def test_supervisor_ends_every_part_when_the_session_is_over() -> None:
    """Parts live as long as the session, and no longer."""
    parts = [part("redis", *SLEEP), part("api", *SLEEP, tier=Tier.FRONT)]
    supervisor = Supervisor(parts)
    alive: list[psutil.Process] = []
    supervisor.run(lambda: alive.extend(psutil.Process(supervisor.pid(one)) for one in parts))
    assert len(alive) == 2
    assert not any(process.is_running() for process in alive)
    assert supervisor.stopped_by is None


def test_supervisor_knows_each_part_by_the_pid_of_its_program() -> None:
    """The shell that starts a part has become the part."""
    one = part("redis", *SLEEP)
    supervisor = Supervisor([one])
    names: list[str] = []

    def session() -> None:
        process = psutil.Process(supervisor.pid(one))
        wait_for(lambda: process.name() == "sleep")
        names.append(process.name())

    supervisor.run(session)
    assert names == ["sleep"]


def test_supervisor_ends_the_tiers_one_after_the_other(tmp_path: Path) -> None:
    """The front is gone before the workers are asked, and they are gone before the ground is."""
    ended, ready = tmp_path / "ended", tmp_path / "ready"

    def noting(name: str, tier: Tier) -> Part:
        script = (
            f"trap 'sleep 0.2; echo {name} >> {ended}; exit' TERM; echo {name} >> {ready}; while :; do sleep 0.02; done"
        )
        return part(name, *shell(script), tier=tier)

    parts = [noting("redis", Tier.GROUND), noting("worker", Tier.WORKERS), noting("api", Tier.FRONT)]
    run_until(Supervisor(parts), lambda: ready.exists() and len(ready.read_text().split()) == 3)
    assert ended.read_text().split() == ["api", "worker", "redis"]


def test_supervisor_tells_which_part_died_and_what_it_printed_last() -> None:
    """The name, how it ended, the end of its output and what to do are all there."""
    parts = [part("redis", *SLEEP), part("triton", *shell("seq 1 50; echo no such model >&2; exit 3"))]
    supervisor = Supervisor(parts)
    with pytest.raises(PartFailed, match="triton ended with exit code 3") as caught:
        run_until(supervisor, lambda: False)
    error = caught.value
    assert (error.part, error.advice) == ("triton", "mend triton")
    assert len(error.last_lines) == KEPT_LINES
    assert error.last_lines[-2:] == ("50", "no such model")
    assert not psutil.pid_exists(supervisor.pid(parts[0]))


def test_supervisor_tells_which_signal_killed_a_part() -> None:
    """A part that was killed is not passed off as one that ended."""
    with pytest.raises(PartFailed, match="redis was ended by SIGKILL"):
        run_until(Supervisor([part("redis", *shell("kill -9 $$"))]), lambda: False)


def test_supervisor_names_the_part_rather_than_what_the_session_met_because_of_it() -> None:
    """When the API dies, the client's broken connection is no news."""

    def session() -> None:
        wait_for(lambda: not psutil.pid_exists(supervisor.pid(api)))
        raise ConnectionResetError

    api = part("api", *shell("exit 1"))
    supervisor = Supervisor([api])
    with pytest.raises(PartFailed):
        supervisor.run(session)


def test_supervisor_adds_what_a_part_printed_to_a_failure_that_the_session_met() -> None:
    """A part that is not ready in time, or refuses to work, may have said why."""
    one = part("api", *shell("echo no model; exec sleep 60"))
    supervisor = Supervisor([one])

    def session() -> None:
        wait_for(lambda: bool(supervisor.last_lines("api")))
        raise PartFailed("api", "api was not ready", advice="")

    with pytest.raises(PartFailed) as caught:
        supervisor.run(session)
    assert caught.value.last_lines == ("no model",)


def test_supervisor_raises_what_the_session_raised() -> None:
    """A session's own failure comes out where the stack was run, with all parts ended."""

    def session() -> None:
        raise ZeroDivisionError

    one = part("redis", *SLEEP)
    supervisor = Supervisor([one])
    with pytest.raises(ZeroDivisionError):
        supervisor.run(session)
    assert not psutil.pid_exists(supervisor.pid(one))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_supervisor_ends_in_order_when_a_signal_comes(number: signal.Signals) -> None:
    """A signal ends the session, is remembered, and is no failure; the handlers of before are back afterwards."""
    before = signal.getsignal(number)
    one = part("redis", *SLEEP)
    supervisor = Supervisor([one])

    def session() -> None:
        os.kill(os.getpid(), number)
        supervisor.pause(60)

    supervisor.run(session)
    assert supervisor.stopped_by is number
    assert not psutil.pid_exists(supervisor.pid(one))
    assert signal.getsignal(number) is before


def test_supervisor_kills_what_does_not_end_within_its_grace(tmp_path: Path) -> None:
    """A part that does not mind being asked holds nobody up for long."""
    ready = tmp_path / "ready"
    deaf = part("triton", *shell(f"trap '' TERM; echo $$ > {ready}; while :; do sleep 1; done"), grace_seconds=0.3)
    run_until(Supervisor([deaf]), ready.exists)
    assert not psutil.pid_exists(pid_in(ready))


def test_supervisor_leaves_no_child_of_a_part_behind(tmp_path: Path) -> None:
    """A part that leaves a child when it ends is cleaned up after."""
    child = tmp_path / "child"
    run_until(Supervisor([part("worker", *shell(f"sleep 60 & echo $! > {child}; exec sleep 60"))]), child.exists)
    wait_for(lambda: has_ended(pid_in(child)))


def test_supervisor_notices_the_death_of_a_part_whose_child_lives_on(tmp_path: Path) -> None:
    """A child that holds the output open does not hide that its parent was killed, and goes with it."""
    child = tmp_path / "child"
    with pytest.raises(PartFailed, match="SIGKILL"):
        run_until(
            Supervisor([part("worker", *shell(f"sleep 60 & echo $! > {child}; sleep 0.1; kill -9 $$"))]), lambda: False
        )
    wait_for(lambda: has_ended(pid_in(child)))


def test_supervisor_notices_a_part_whose_go_between_was_killed() -> None:
    """The process that watches a part may die as well; then the part is lost, and the stack ends."""
    one = part("redis", *SLEEP)
    supervisor = Supervisor([one])

    def session() -> None:
        psutil.Process(supervisor.pid(one)).parent().kill()
        supervisor.pause(60)

    with pytest.raises(PartFailed, match="redis was lost"):
        supervisor.run(session)
    wait_for(lambda: has_ended(supervisor.pid(one)))


def test_supervisor_that_is_killed_takes_its_parts_along(tmp_path: Path) -> None:
    """After a kill -9 nobody is left to clean up, so the parts end by themselves, their children too."""
    child, script = tmp_path / "child", tmp_path / "stack.py"
    script.write_text(
        textwrap.dedent(f"""
            from tidegate.local.parts import Part, Tier
            from tidegate.local.supervise import Supervisor

            command = ("sh", "-c", "sleep 60 & echo $! > {child}; wait")
            part = Part(name="worker", command=command, tier=Tier.WORKERS, grace_seconds=9, ready=(), advice="")
            supervisor = Supervisor([part])
            supervisor.run(lambda: supervisor.pause(60))
        """)
    )
    stack = subprocess.Popen([sys.executable, str(script)], env=os.environ | {"PYTHONPATH": str(Path.cwd())})
    try:
        orphan = psutil.Process(pid_in(child))
        family = psutil.Process(stack.pid).children(recursive=True)
        assert orphan in family
    finally:
        stack.kill()
        stack.wait()
    wait_for(lambda: all(has_ended(process.pid) for process in family))


def test_supervisor_prints_what_parts_print_from_when_it_is_told_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The noise of the start stays out of the way; afterwards every line says whose it is."""
    go = tmp_path / "go"
    one = part("redis", *shell(f"echo early; while [ ! -e {go} ]; do sleep 0.02; done; echo late; exec sleep 60"))
    supervisor = Supervisor([one])

    def session() -> None:
        wait_for(lambda: supervisor.last_lines("redis") == ("early",))
        supervisor.relay()
        go.touch()
        wait_for(lambda: supervisor.last_lines("redis") == ("early", "late"))

    supervisor.run(session)
    printed = capsys.readouterr().out
    assert "early" not in printed
    assert "redis | late" in " ".join(printed.split())


def test_supervisor_goes_on_when_nobody_reads_its_output_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed pipe, as in ``tidegate up | head``, does not bring the parts down in disorder."""
    monkeypatch.setattr("sys.stdout", NobodyReads())
    supervisor = Supervisor([part("redis", *shell("while :; do echo line; sleep 0.02; done"))])
    written_off: list[bool] = []

    def session() -> None:
        supervisor.relay()
        wait_for(lambda: len(supervisor.last_lines("redis")) == KEPT_LINES)
        written_off.append(True)

    supervisor.run(session)
    assert written_off
