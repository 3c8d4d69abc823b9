"""Requests to hosts that clients named: one at a time in a thread, each within a limit of time."""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import certifi
import httpcore
import httpx
from ssrfguard import SSRFGuardError

from tidegate.errors import SettingsError, UrlNotAllowed, UrlTimeout, UrlUnreachable
from tidegate.outbound.connection import LimitedResolver, PinnedBackend, Resolver
from tidegate.outbound.limit import time_limit
from tidegate.outbound.rules import OutboundRules
from tidegate.settings import PREFIX, Settings

#: How long an idle connection is kept for the next request to the same host, in seconds.
KEEP_ALIVE_SECONDS = 15.0
#: Look-ups that may hang beside one for each request, before further ones wait for them.
SPARE_LOOKUPS = 16


class PinnedTransport(httpx.BaseTransport):
    """An httpx transport over :class:`~tidegate.outbound.connection.PinnedBackend`, and in our errors."""

    def __init__(self, pool: httpcore.ConnectionPool) -> None:
        self._pool = pool

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request, and give the answer as soon as its headers are there.

        Raises:
            UrlNotAllowed, UrlUnreachable, UrlTimeout: as :meth:`Door.request`.
        """
        assert isinstance(request.stream, httpx.SyncByteStream)
        with _in_our_errors():
            answer = self._pool.handle_request(
                httpcore.Request(
                    method=request.method,
                    url=httpcore.URL(
                        scheme=request.url.raw_scheme,
                        host=request.url.raw_host,
                        port=request.url.port,
                        target=request.url.raw_path,
                    ),
                    headers=request.headers.raw,
                    content=request.stream,
                )
            )
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer), extensions=answer.extensions, request=request
        )

    def close(self) -> None:
        """Close every connection."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    """The bytes of an answer, as they come over the wire."""

    def __init__(self, answer: httpcore.Response) -> None:
        self._answer = answer

    def __iter__(self) -> Iterator[bytes]:
        with _in_our_errors():
            yield from self._answer.iter_stream()

    def close(self) -> None:
        with _in_our_errors():
            self._answer.close()


class Door:
    """The way out, one a process; safe to use from many threads.

    There is no ``httpx.Client`` on top of the transport: nothing follows redirects, keeps cookies or asks the
    environment for a proxy.
    """

    def __init__(self, settings: Settings, *, connections: int, resolver: Resolver | None = None) -> None:
        """Build it; nothing is sent.

        Args:
            settings: the ``outbound_`` ones.
            connections: most requests at the same time.
            resolver: in place of the system's, like ``socket.getaddrinfo``. What it says is judged all the same.

        Raises:
            SettingsError: an ``outbound_`` setting is wrong.
        """
        self.rules = OutboundRules.from_settings(settings)
        self._lookups = LimitedResolver(connections + SPARE_LOOKUPS)
        self._transport = PinnedTransport(
            httpcore.ConnectionPool(
                ssl_context=_trust(settings.outbound_ca_file),
                max_connections=connections,
                max_keepalive_connections=connections,
                keepalive_expiry=KEEP_ALIVE_SECONDS,
                network_backend=PinnedBackend(self.rules, resolver or self._lookups),
            )
        )

    @contextmanager
    def request(
        self,
        method: str,
        url: httpx.URL,
        *,
        headers: Mapping[str, str],
        limit_seconds: float,
        content: bytes | None = None,
    ) -> Iterator[httpx.Response]:
        """Send a request; inside the block its answer can be read, with ``iter_raw``, while the time is not over.

        Args:
            method: of the request.
            url: from :meth:`OutboundRules.judge`.
            headers: all but Host and Content-Length.
            limit_seconds: for everything, from the look-up to the end of the block.
            content: the body.

        Raises:
            UrlNotAllowed: the host has an address that may not be called. Nothing was sent to anybody.
            UrlUnreachable: no address, no connection, no valid certificate, or no HTTP.
            UrlTimeout: the time was over before the answer was complete.
        """
        with time_limit(limit_seconds):
            response = self._transport.handle_request(httpx.Request(method, url, headers=headers, content=content))
            try:
                yield response
            finally:
                response.close()

    def close(self) -> None:
        """Close every connection."""
        self._transport.close()
        self._lookups.close()


def _trust(ca_file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=certifi.where())
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"{PREFIX}OUTBOUND_CA_FILE: {ca_file} cannot be read as PEM") from error
    return context


@contextmanager
def _in_our_errors() -> Iterator[None]:
    """The one place where errors of what is below become ours. Their texts have addresses in them, ours have not."""
    try:
        yield
    except SSRFGuardError as error:
        raise UrlNotAllowed("The host of this URL is not a public one.") from error
    except httpcore.TimeoutException as error:
        raise UrlTimeout("The host did not answer within the time limit.") from error
    except (
        httpcore.NetworkError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
        httpcore.ConnectionNotAvailable,
        OSError,
    ) as error:
        raise UrlUnreachable("The host cannot be reached, or does not speak HTTP.") from error
