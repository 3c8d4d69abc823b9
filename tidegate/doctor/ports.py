"""The ports that ``tidegate up`` takes, and who has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import httpx

from tidegate.doctor.finding import Finding, fine, warning
from tidegate.local.ports import LOOPBACK, PortTaken, claim_ports

#: Who listens where by default, and on which path one asks it whether it lives.
PORTS: Mapping[str, tuple[int, str]] = {"api": (8000, "/healthz"), "flower": (5555, "/healthcheck")}
ANSWER_SECONDS = 1.0


def look_at_ports() -> Iterator[Finding]:
    """Each port by itself."""
    for name, (port, path) in PORTS.items():
        try:
            claim_ports({name: port})
            yield fine(f"port {port}", f"free for the {name}")
        except PortTaken:
            yield _taken(name, port, path)


def _taken(name: str, port: int, path: str) -> Finding:
    try:
        answers = httpx.get(f"http://{LOOPBACK}:{port}{path}", timeout=ANSWER_SECONDS, trust_env=False).is_success
    except httpx.HTTPError:
        answers = False
    if answers:
        return fine(f"port {port}", f"the {name} listens there")
    advice = f"Find out who with `ss -ltnp 'sport = :{port}'`, or name another: tidegate up --{name}-port PORT"
    return warning(f"port {port}", f"taken by something else than the {name}", advice)
