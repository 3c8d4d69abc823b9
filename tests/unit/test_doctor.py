"""What ``tidegate doctor`` makes of what it finds."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from tidegate.cli.commands import app
from tidegate.doctor import machine, ports
from tidegate.doctor.finding import Verdict
from tidegate.doctor.machine import judge_python, look_at_machine
from tidegate.doctor.models import judge_server
from tidegate.doctor.ports import look_at_ports
from tidegate.doctor.store import judge_clock, judge_rewrites, judge_store, look_at_store
from tidegate.local import MissingPart
from tidegate.settings import load_settings

#: As a Redis tells of itself that is as it should be.
GOOD: Mapping[str, Any] = {
    "redis_version": "7.4.1",
    "redis_mode": "standalone",
    "role": "master",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "maxmemory_policy": "noeviction",
    "maxmemory": 2**30,
    "used_memory": 2**20,
}


def verdicts(**changed: Any) -> dict[str, Verdict]:
    """What is said of a Redis that differs from a good one."""
    return {finding.subject: finding.verdict for finding in judge_store({**GOOD, **changed})}


def test_good_redis_is_fine() -> None:
    """Nothing is said against a Redis as the documentation asks for it."""
    assert set(verdicts().values()) == {Verdict.FINE}


@pytest.mark.parametrize(
    ("changed", "subject", "verdict"),
    [
        ({"redis_version": "6.0.16"}, "redis", Verdict.FAULT),
        ({"redis_version": "6.2.14"}, "redis", Verdict.FINE),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.1"}, "redis", Verdict.FINE),
        ({"role": "slave"}, "redis role", Verdict.FAULT),
        ({"redis_mode": "cluster"}, "redis role", Verdict.FAULT),
        ({"aof_enabled": 0}, "persistence", Verdict.WARNING),
        ({"aof_last_write_status": "err"}, "persistence", Verdict.FAULT),
        ({"maxmemory_policy": "allkeys-lru"}, "eviction policy", Verdict.FAULT),
        ({"maxmemory_policy": "volatile-ttl"}, "eviction policy", Verdict.FAULT),
        ({"used_memory": 2**30 - 1}, "redis memory", Verdict.WARNING),
        ({"maxmemory": 0, "used_memory": 2**40}, "redis memory", Verdict.FINE),
    ],
)
def test_redis_is_judged_by_what_it_tells(changed: dict[str, Any], subject: str, verdict: Verdict) -> None:
    """One thing that is wrong is told for itself, and everything else stays fine."""
    expected = dict.fromkeys(verdicts(), Verdict.FINE) | {subject: verdict}
    assert verdicts(**changed) == expected


def test_what_is_wrong_comes_with_the_command_that_mends_it() -> None:
    """Nobody has to look it up."""
    advice = {finding.subject: finding.advice for finding in judge_store({**GOOD, "maxmemory_policy": "volatile-lru"})}
    assert "CONFIG SET maxmemory-policy noeviction" in advice["eviction policy"]
    advice = {finding.subject: finding.advice for finding in judge_store({**GOOD, "aof_enabled": 0})}
    assert "CONFIG SET appendonly yes" in advice["persistence"]


@pytest.mark.parametrize(("mebibytes", "verdict"), [(64, Verdict.WARNING), (1024, Verdict.FINE)])
def test_a_file_that_would_be_rewritten_all_the_time_is_told(mebibytes: int, verdict: Verdict) -> None:
    """Redis's own default is, what Tidegate ships with is not."""
    finding = judge_rewrites(mebibytes * 2**20)
    assert finding.verdict is verdict
    assert f"from {mebibytes} MiB on" in finding.facts
    assert ("CONFIG SET auto-aof-rewrite-min-size" in finding.advice) is (verdict is Verdict.WARNING)


@pytest.mark.parametrize(
    ("skew", "verdict", "words"),
    [(0.2, Verdict.FINE, "ahead of"), (-30.0, Verdict.WARNING, "30.000 s behind"), (1.5, Verdict.WARNING, "1.500 s")],
)
def test_clocks_that_disagree_are_told(skew: float, verdict: Verdict, words: str) -> None:
    """With how far and in which direction."""
    finding = judge_clock(skew)
    assert finding.verdict is verdict
    assert words in finding.facts


def test_redis_that_does_not_answer_is_told_without_its_password() -> None:
    """The address helps, and the secret in it stays one."""
    settings = load_settings({}, redis_url="redis://user:s3cret@127.0.0.1:1/0")
    (finding,) = look_at_store(settings)
    assert finding.verdict is Verdict.FAULT
    assert "redis://127.0.0.1:1/0" in finding.facts
    assert "s3cret" not in str(finding)


def test_models_are_told_one_by_one() -> None:
    """A model that cannot be served is named with the reason, beside those that can."""
    good = {"name": "good", "versions": ["1", "2"], "input": "UINT8 [2, 2, 3] NHWC", "classes": 4, "reason": ""}
    bad = {"name": "bad", "versions": ["1"], "input": "", "classes": 0, "reason": "It has two inputs."}
    findings = list(judge_server("here:8001", {"models": [good, bad]}))
    assert [(finding.subject, finding.verdict) for finding in findings] == [
        ("triton", Verdict.FINE),
        ("model good", Verdict.FINE),
        ("model bad", Verdict.FAULT),
    ]
    assert findings[1].facts == "version 1, 2: UINT8 [2, 2, 3] NHWC, 4 classes"
    assert findings[2].facts == "It has two inputs."


@pytest.mark.parametrize("answer", [{"error": "connection refused"}, {"models": []}])
def test_server_without_models_is_a_fault_with_advice(answer: dict[str, Any]) -> None:
    """Down or empty: either way nothing can be classified, and the address is told."""
    (finding,) = judge_server("here:8001", answer)
    assert finding.verdict is Verdict.FAULT
    assert "here:8001" in finding.facts
    assert finding.advice


@pytest.mark.parametrize(
    ("version", "verdict"), [((3, 10), Verdict.FAULT), ((3, 11), Verdict.FINE), ((3, 14), Verdict.FAULT)]
)
def test_python_is_judged_by_its_version(version: tuple[int, int], verdict: Verdict) -> None:
    """Those that Tidegate is made for are fine."""
    assert judge_python(version).verdict is verdict


def test_missing_part_of_the_embedded_stack_is_only_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs a Triton elsewhere needs none of it."""

    def missing() -> None:
        raise MissingPart("this system has another C library")

    monkeypatch.setattr(machine, "require_platform", missing)
    findings = {finding.subject: finding for finding in look_at_machine()}
    assert findings["glibc"].verdict is Verdict.WARNING
    assert findings["glibc"].facts == "this system has another C library"


def test_ports_are_told_by_who_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Free, taken by the very part that belongs there, or by something else."""

    class Healthy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Healthy) as server, socket.create_server(("127.0.0.1", 0)) as free:
        Thread(target=server.serve_forever, daemon=True).start()
        taken, unused = server.server_port, free.getsockname()[1]
        free.close()
        table = {"api": (taken, "/healthz"), "other": (taken, "/nothing"), "flower": (unused, "/healthcheck")}
        monkeypatch.setattr(ports, "PORTS", table)
        found = [(finding.verdict, finding.facts) for finding in look_at_ports()]
        server.shutdown()
    assert found == [
        (Verdict.FINE, "the api listens there"),
        (Verdict.WARNING, "taken by something else than the other"),
        (Verdict.FINE, "free for the flower"),
    ]


def test_doctor_tells_a_wrong_setting_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code says that there is a fault, and what does not depend on settings is looked at all the same."""
    monkeypatch.setenv("TIDEGATE_REDSI_URL", "redis://127.0.0.1")
    result = CliRunner().invoke(app, ["doctor", "--json"])
    assert result.exit_code == 1
    findings = {finding["subject"]: finding for finding in json.loads(result.stdout)}
    assert findings["settings"]["verdict"] == "fault"
    assert "TIDEGATE_REDSI_URL" in findings["settings"]["facts"]
    assert "port 8000" in findings
