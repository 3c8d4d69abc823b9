"""Connections to judged addresses: one look-up, every answer judged, and the connection goes to one of those answers.

httpcore asks for a connection to a host and a port, and starts TLS on it with the host's own name, so that the
certificate is checked, and SNI sent, for the name while the packets go to the address.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from ipaddress import ip_address
from typing import Any

import httpcore
from ssrfguard import Address, Target, resolve

from tidegate.errors import UrlTimeout
from tidegate.outbound.limit import remaining
from tidegate.outbound.rules import OutboundRules

#: Like ``socket.getaddrinfo``, by position.
Resolver = Callable[..., Any]

#: Longest wait for one address of a host, in seconds, so that one that swallows packets leaves time for the next.
CONNECT_SECONDS = 5.0
#: Bytes written under one look at the limit of time.
WRITE_BYTES = 16 * 1024


class LimitedResolver:
    """``socket.getaddrinfo``, which has no limit of time of its own, under the request's."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="look-up")

    def __call__(self, *question: Any) -> Any:
        """Ask; a thread that hangs in the system's resolver comes back when that gives up."""
        answer = self._threads.submit(socket.getaddrinfo, *question)
        try:
            return answer.result(timeout=remaining())
        except FutureTimeout as error:
            answer.cancel()
            raise UrlTimeout("The host's name was not found within the time limit.") from error

    def close(self) -> None:
        """Wait for nobody."""
        self._threads.shutdown(wait=False, cancel_futures=True)


class LimitedStream(httpcore.NetworkStream):
    """A connection each of whose waits is within the time limit of the request that it serves now."""

    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read some bytes."""
        return self._stream.read(max_bytes, timeout=remaining(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of the buffer."""
        for start in range(0, len(buffer), WRITE_BYTES):
            self._stream.write(buffer[start : start + WRITE_BYTES], timeout=remaining(timeout))

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        """Go on encrypted, with the host that ``server_hostname`` names or with nobody."""
        return LimitedStream(self._stream.start_tls(ssl_context, server_hostname, timeout=remaining(timeout)))

    def get_extra_info(self, info: str) -> Any:
        """What httpcore asks of a connection; with it, it tells idle ones that were closed."""
        return self._stream.get_extra_info(info)


class PinnedBackend(httpcore.NetworkBackend):
    """Opens connections to judged addresses, and to nothing else."""

    def __init__(self, rules: OutboundRules, resolver: Resolver) -> None:
        self._rules = rules
        self._resolver = resolver
        self._sockets = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of the host that takes a connection.

        Raises:
            SSRFGuardError: one of its addresses is not one that may be called; then none of them is.
            OSError: it has no address.
            httpcore.ConnectError, httpcore.ConnectTimeout: none of the addresses that were tried takes a connection.
            UrlTimeout: the time is over.
        """
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in self._judged_addresses(host, port):
            try:
                # A numeric address: there is no name left that could be looked up again.
                stream = self._sockets.connect_tcp(
                    str(address.ip),
                    port,
                    remaining(min(timeout or CONNECT_SECONDS, CONNECT_SECONDS)),
                    local_address,
                    socket_options or (),
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
            else:
                return LimitedStream(stream)
        raise failure or httpcore.ConnectError("no address")

    def _judged_addresses(self, host: str, port: int) -> tuple[Address, ...]:
        policy = self._rules.policy_for(host)
        target = Target(scheme="tcp", host=host, port=port, host_as_written=host, address=_literal(host))
        addresses = resolve(target, policy=policy, resolver=self._resolver)
        return addresses[: policy.max_connection_attempts]


def _literal(host: str) -> Any:
    try:
        return ip_address(host)
    except ValueError:
        return None
