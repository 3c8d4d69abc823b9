"""Ports on loopback."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tidegate.local.ports import LOOPBACK, PortTaken, claim_ports


def test_ports_asked_for_as_zero_are_free_and_all_different() -> None:
    """Every listener gets a port of its own that it can bind."""
    ports = claim_ports({str(number): 0 for number in range(20)})
    assert len(set(ports.values())) == 20
    for port in ports.values():
        socket.create_server((LOOPBACK, port)).close()


def test_ports_that_are_free_lie_where_no_outgoing_connection_takes_them() -> None:
    """They are below the kernel's ephemeral range, so nothing grabs one before its part binds it."""
    ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(port < ephemeral for port in claim_ports({"a": 0, "b": 0}).values())


def test_ports_asked_for_by_number_are_kept() -> None:
    """A number that is free comes back as it was."""
    wanted = claim_ports({"api": 0})
    assert claim_ports(wanted) == wanted


def test_ports_in_use_are_refused_by_name() -> None:
    """Whoever asked for a port that somebody listens on learns which, and for whom."""
    with socket.create_server((LOOPBACK, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} is taken") as caught:
            claim_ports({"api": 0, "redis": port})
    assert (caught.value.name, caught.value.port) == ("redis", port)


def test_ports_asked_for_twice_are_refused() -> None:
    """Two listeners cannot have one port."""
    port = claim_ports({"api": 0})["api"]
    with pytest.raises(PortTaken):
        claim_ports({"api": port, "flower": port})
