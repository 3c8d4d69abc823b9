"""How Triton is reached: one server, several, or a name with many addresses."""

from __future__ import annotations

import socket

from tidegate.errors import ModelUnreachable


def channel_target(url: str) -> str:
    """GRPC's name for ``TIDEGATE_TRITON_URL``: a DNS name with all its addresses, or a comma list of hosts."""
    hosts = [part.strip() for part in url.split(",") if part.strip()]
    if len(hosts) == 1:
        return f"dns:///{hosts[0]}"
    return "ipv4:" + ",".join(_numeric(host) for host in hosts)


def _numeric(host_and_port: str) -> str:
    host, _, port = host_and_port.rpartition(":")
    try:
        return f"{socket.gethostbyname(host)}:{port}"
    except OSError as error:
        raise ModelUnreachable("Triton cannot be reached: one of its hosts has no address") from error


def one_address(url: str) -> bool:
    """Whether all calls go to one server: only then does it know what was registered with it."""
    if "," in url:
        return False
    host, _, port = url.rpartition(":")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return len({address[4][0] for address in found if address[0] == socket.AF_INET}) == 1


#: Several addresses share the calls; a lost one is tried again soon, since a queue waits for it.
CHANNEL_OPTIONS: list[tuple[str, str | int]] = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.lb_policy_name", "round_robin"),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # Off: Triton closes connections that ping more often than it allows, and every call has a deadline anyway.
    ("grpc.keepalive_time_ms", 2**31 - 1),
]
