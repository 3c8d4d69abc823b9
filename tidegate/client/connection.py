"""How both clients use httpx: the same limits, headers and time-outs, and one meaning of its errors."""

from __future__ import annotations

import ipaddress
from typing import Any

import httpx

from tidegate.client.errors import ApiUnreachable
from tidegate.client.exchanges import Send

DEFAULT_URL = "http://127.0.0.1:8000"
CONNECT_SECONDS = 5.0
#: For one read or write of the socket, beyond the time for which the answer is held.
SILENCE_SECONDS = 20.0
#: A connection that rests this long is not used again: servers close idle ones, uvicorn after 5 s.
IDLE_SECONDS = 3.0


def http_options(base_url: str, api_key: str | None) -> dict[str, Any]:
    """What httpx's clients are made with."""
    url = httpx.URL(base_url)
    return {
        "base_url": url,
        "headers": {"User-Agent": "tidegate-client"} | ({"Authorization": f"Bearer {api_key}"} if api_key else {}),
        # How many requests go at a time is the caller's matter; none waits for a connection.
        "limits": httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_SECONDS),
        # The environment may name a proxy, which has no business between us and this machine.
        "trust_env": not _is_loopback(url.host),
    }


def build_request(http: httpx.Client | httpx.AsyncClient, send: Send) -> httpx.Request:
    """The request that a call wants sent."""
    timeout = httpx.Timeout(SILENCE_SECONDS, connect=CONNECT_SECONDS, read=SILENCE_SECONDS + send.hold_seconds)
    return http.build_request(
        send.method, send.path, headers=send.headers, params=send.params, timeout=timeout, **send.body
    )


def translate(error: httpx.TransportError, http: httpx.Client | httpx.AsyncClient) -> ApiUnreachable:
    """What it means that httpx brought no answer."""
    # These tell of a request that no server will ever see.
    hopeless = isinstance(error, httpx.UnsupportedProtocol | httpx.LocalProtocolError)
    reason = str(error) or type(error).__name__
    return ApiUnreachable(f"The API at {http.base_url} does not answer: {reason}", retryable=not hopeless)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
