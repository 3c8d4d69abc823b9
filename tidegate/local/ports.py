"""Ports on loopback: those a person asked for, and free ones for the rest."""

from __future__ import annotations

import contextlib
import random
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

LOOPBACK = "127.0.0.1"
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST = 20_000
_HIGHEST = 65_535
_TRIES = 200


class PortTaken(Exception):
    """Somebody listens on a port that was asked for.

    Attributes:
        name: whom it was meant for.
        port: the number.
    """

    def __init__(self, name: str, port: int) -> None:
        super().__init__(f"port {port} is taken")
        self.name = name
        self.port = port


def claim_ports(wanted: Mapping[str, int]) -> dict[str, int]:
    """Turn every 0 into a free port, all different, and make sure that the others are free.

    Nothing keeps a port reserved once this returns; the part that it is for should bind it soon.

    Args:
        wanted: port by name; 0 means any free one.

    Raises:
        PortTaken: a port that is not 0 is in use, or asked for twice.
    """
    with contextlib.ExitStack() as held:
        fixed = {name: _hold(held, name, port) for name, port in wanted.items() if port}
        free = {name: _hold_any(held, name) for name, port in wanted.items() if not port}
    return {name: (fixed | free)[name] for name in wanted}


def _hold(held: contextlib.ExitStack, name: str, port: int) -> int:
    sock = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
    # As servers do: connections of a server that has just gone must not keep its port from the next.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOOPBACK, port))
        sock.listen()
    except OSError as error:
        raise PortTaken(name, port) from error
    return port


def _hold_any(held: contextlib.ExitStack, name: str) -> int:
    for port in _candidates():
        with contextlib.suppress(PortTaken):
            return _hold(held, name, port)
    raise PortTaken(name, 0)


def _candidates() -> Iterator[int]:
    """Ports below the kernel's ephemeral range: no outgoing connection can take one before its part has bound it."""
    ephemeral, _ = _EPHEMERAL_RANGE.read_text(encoding="ascii").split()
    below = range(_LOWEST, int(ephemeral))
    return iter(random.sample(below if len(below) > _TRIES else range(_LOWEST, _HIGHEST), k=_TRIES))
