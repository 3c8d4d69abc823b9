"""The door, on real sockets: where a connection goes, whom it trusts, and when it gives up."""

from __future__ import annotations

import itertools
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.integration.receiver import Receiver, Reply, running_raw, running_receiver
from tests.integration.server_process import free_ports
from tidegate.errors import OutboundError, SettingsError, UrlNotAllowed, UrlTimeout, UrlUnreachable
from tidegate.outbound import Door
from tidegate.settings import load_settings

#: The address that stands for a public one, and the one that stands for the inside.
OUTSIDE, INSIDE = "127.0.0.2", "127.0.0.1"


@contextmanager
def door(resolver: Any = None, **settings: str) -> Iterator[Door]:
    """A door on any port, to the outside only unless the test opens more."""
    chosen = {"outbound_ports": "1-65535", "outbound_allow": OUTSIDE, **settings}
    opened = Door(load_settings({}, **chosen), connections=8, resolver=resolver)
    try:
        yield opened
    finally:
        opened.close()


def get(through: Door, url: str, *, limit_seconds: float = 5.0) -> tuple[int, bytes]:
    """Status and body of a GET."""
    judged = through.rules.judge(url)
    with through.request("GET", judged, headers={}, limit_seconds=limit_seconds) as response:
        return response.status_code, b"".join(response.iter_raw())


def answers(*addresses: str) -> Callable[..., Any]:
    """A resolver that gives all of these for every name."""

    def resolver(host: str, port: int, *_: Any) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

    return resolver


def alternating(addresses: Sequence[str]) -> Callable[..., Any]:
    """A name server that gives another answer each time."""
    turns = itertools.cycle(addresses)
    return lambda host, port, *_: answers(next(turns))(host, port)


@contextmanager
def inside_and_outside() -> Iterator[tuple[Receiver, Receiver, int]]:
    """Two servers on one port, one at each address."""
    (port,) = free_ports(1)
    with running_receiver(port=port) as inside, running_receiver(port=port, address=OUTSIDE) as outside:
        yield inside, outside, port


def test_opened_address_is_reached() -> None:
    """What the operator opened, and what a name leads to there, is called with the name as its Host."""
    with running_receiver(address=OUTSIDE) as receiver, door(answers(OUTSIDE)) as through:
        assert get(through, f"http://hooks.example:{receiver.port}/a?b=c") == (200, b"")
    assert receiver.received[0].path == "/a?b=c"
    assert receiver.received[0].headers["host"] == f"hooks.example:{receiver.port}"


def test_name_that_leads_inside_is_not_called() -> None:
    """Its address is judged after the look-up, and nobody there hears of it."""
    with inside_and_outside() as (inside, _, port), door(answers(INSIDE)) as through:
        with pytest.raises(UrlNotAllowed):
            get(through, f"http://hooks.example:{port}/")
        assert inside.received == []


def test_name_that_leads_both_ways_is_not_called() -> None:
    """One address inside makes all of them suspicious, whichever comes first."""
    with inside_and_outside() as (inside, outside, port):
        for order in ((INSIDE, OUTSIDE), (OUTSIDE, INSIDE)):
            with door(answers(*order)) as through, pytest.raises(UrlNotAllowed):
                get(through, f"http://hooks.example:{port}/")
        assert inside.received == outside.received == []


def test_name_that_changes_its_mind_never_leads_inside() -> None:
    """A name server with a time to live of zero that alternates: 200 requests, none of them inside."""
    refused = 0
    with inside_and_outside() as (inside, outside, port), door(alternating([OUTSIDE, INSIDE])) as through:
        for number in range(200):
            try:
                # A name of its own for each, so that no connection is used twice.
                get(through, f"http://rebinding-{number}.example:{port}/")
            except UrlNotAllowed:
                refused += 1
        assert inside.received == []
        assert (len(outside.received), refused) == (100, 100)


def test_host_is_looked_up_once_for_a_connection() -> None:
    """There is no second look-up that could be answered in another way."""
    questions: list[str] = []

    def resolver(host: str, port: int, *_: Any) -> Any:
        questions.append(host)
        return answers(OUTSIDE)(host, port)

    with running_receiver(address=OUTSIDE) as receiver, door(resolver) as through:
        get(through, f"http://hooks.example:{receiver.port}/")
    assert questions == ["hooks.example"]


def test_system_resolver_is_judged_like_any_other() -> None:
    """A name of this machine's own that leads inside is refused, and taken when the operator opened that name."""
    with running_receiver() as receiver:
        with door() as through, pytest.raises(UrlNotAllowed):
            get(through, f"http://localhost:{receiver.port}/")
        with door(outbound_allow="localhost") as through:
            assert get(through, f"http://localhost:{receiver.port}/") == (200, b"")


def test_proxy_of_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would look the host up for itself, so nothing goes to it."""
    with running_receiver() as proxy, running_receiver(address=OUTSIDE) as receiver:
        for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(variable, proxy.url)
            monkeypatch.setenv(variable.lower(), proxy.url)
        with door() as through:
            get(through, f"http://{OUTSIDE}:{receiver.port}/")
    assert (len(receiver.received), proxy.received) == (1, [])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_is_an_answer_and_nothing_more(status: int) -> None:
    """The door follows none; whoever does has each hop judged."""
    with running_receiver() as inside, running_receiver(address=OUTSIDE) as receiver, door() as through:
        receiver.default = Reply(status, {"location": inside.url})
        assert get(through, f"http://{OUTSIDE}:{receiver.port}/")[0] == status
    assert inside.received == []


def test_cookies_are_not_kept() -> None:
    """What one answer sets, the next request does not bring."""
    with running_receiver(address=OUTSIDE) as receiver, door() as through:
        receiver.default = Reply(200, {"set-cookie": "session=1; Path=/"})
        get(through, f"http://{OUTSIDE}:{receiver.port}/")
        get(through, f"http://{OUTSIDE}:{receiver.port}/")
    assert ["cookie" in request.headers for request in receiver.received] == [False, False]


def test_second_address_is_tried_when_the_first_takes_no_connection() -> None:
    """A host with a dead address among its own is still reached."""
    with running_receiver(address=OUTSIDE) as receiver:
        resolver = answers("127.0.0.3", OUTSIDE)
        with door(resolver, outbound_allow=f"{OUTSIDE},127.0.0.3") as through:
            assert get(through, f"http://hooks.example:{receiver.port}/") == (200, b"")


def test_idle_connection_serves_the_next_request() -> None:
    """Requests to one host do not pay for a connection each."""
    with running_receiver(address=OUTSIDE) as receiver, door(resolver=answers(OUTSIDE)) as through:
        for _ in range(5):
            get(through, f"http://hooks.example:{receiver.port}/")
    assert (len(receiver.received), receiver.connections) == (5, 1)


# TLS


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """An authority that the world does not know."""
    return trustme.CA()


def server_context(authority: trustme.CA, name: str, seen: list[str | None]) -> ssl.SSLContext:
    """A server's side of TLS, with a certificate for a name; notes for whom clients ask."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)

    def note(_socket: ssl.SSLObject, asked: str | None, _context: ssl.SSLContext) -> None:
        seen.append(asked)

    context.sni_callback = note
    return context


def test_certificate_is_checked_and_asked_for_by_name(authority: trustme.CA, tmp_path: Path) -> None:
    """The packets go to an address, and TLS is spoken with the name."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    seen: list[str | None] = []
    with (
        running_receiver(address=OUTSIDE, tls=server_context(authority, "hooks.example", seen)) as receiver,
        door(answers(OUTSIDE), outbound_ca_file=str(tmp_path / "ca.pem")) as through,
    ):
        assert get(through, f"https://hooks.example:{receiver.port}/") == (200, b"")
    assert seen == ["hooks.example"]


def test_certificate_of_another_name_is_refused(authority: trustme.CA, tmp_path: Path) -> None:
    """Whoever has got hold of the address is not the host."""
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    with (
        running_receiver(address=OUTSIDE, tls=server_context(authority, "evil.example", [])) as receiver,
        door(answers(OUTSIDE), outbound_ca_file=str(tmp_path / "ca.pem")) as through,
    ):
        with pytest.raises(UrlUnreachable):
            get(through, f"https://hooks.example:{receiver.port}/")
        assert receiver.received == []


def test_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    """Without the operator's word only public authorities are trusted."""
    with (
        running_receiver(address=OUTSIDE, tls=server_context(authority, "hooks.example", [])) as receiver,
        door(answers(OUTSIDE)) as through,
        pytest.raises(UrlUnreachable),
    ):
        get(through, f"https://hooks.example:{receiver.port}/")


def test_unreadable_authority_stops_the_start(tmp_path: Path) -> None:
    """With the name of the setting."""
    (tmp_path / "ca.pem").write_text("nothing of the kind")
    for file in ("ca.pem", "missing.pem"):
        with (
            pytest.raises(SettingsError, match="TIDEGATE_OUTBOUND_CA_FILE"),
            door(outbound_ca_file=str(tmp_path / file)),
        ):
            pass


# Limits


def _never(connection: socket.socket) -> None:
    connection.recv(1)


def _drip_head(connection: socket.socket) -> None:
    for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nx-header: " + b"x" * 100 + b"\r\n\r\n":
        connection.send(bytes([byte]))
        time.sleep(0.1)


def _drip_body(connection: socket.socket) -> None:
    connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n")
    for _ in range(100):
        connection.send(b"x")
        time.sleep(0.1)


@pytest.mark.parametrize("serve", [_never, _drip_head, _drip_body])
def test_answer_that_does_not_end_in_time_is_given_up(serve: Callable[[socket.socket], None]) -> None:
    """The limit is over everything, however regularly a byte comes, and though all would be there in the end."""
    with running_raw(serve, address=OUTSIDE) as url, door() as through:
        began = time.monotonic()
        with pytest.raises(UrlTimeout):
            get(through, url, limit_seconds=0.5)
        assert time.monotonic() - began > 0.4


def test_look_up_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver has no limit of its own."""
    released, returned = threading.Event(), threading.Event()

    def hanging(*_: Any) -> list[Any]:
        released.wait(20)
        returned.set()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    with door() as through:
        with pytest.raises(UrlTimeout):
            get(through, "http://slow.example/", limit_seconds=0.3)
        assert not returned.is_set(), "it was not waited for"
        released.set()


def test_address_that_swallows_packets_is_given_up() -> None:
    """Where nobody answers the first packet, the limit holds as well."""
    with socket.socket() as full:
        # A listener whose queue of connections is full drops further ones.
        full.bind((OUTSIDE, 0))
        full.listen(0)
        host, port = full.getsockname()
        with socket.create_connection((host, port)), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex((host, port))
            with door() as through, pytest.raises(UrlTimeout):
                get(through, f"http://{host}:{port}/", limit_seconds=0.5)


@pytest.mark.parametrize(
    "said", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", b"\x00" * 64]
)
def test_what_is_no_complete_answer_is_unreachable(said: bytes) -> None:
    """Another protocol, an answer that breaks off, or none."""
    with (
        running_raw(lambda connection: connection.sendall(said), address=OUTSIDE) as url,
        door() as through,
        pytest.raises(UrlUnreachable),
    ):
        get(through, url)


def test_closed_port_and_unknown_name_are_unreachable() -> None:
    """Nobody is there."""
    (port,) = free_ports(1)

    def nobody(*_: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with door() as through, pytest.raises(UrlUnreachable):
        get(through, f"http://{OUTSIDE}:{port}/")
    with door(nobody) as through, pytest.raises(UrlUnreachable):
        get(through, "http://nobody.example/")


def test_address_inside_answers_alike_whether_its_port_is_open() -> None:
    """Nobody can look for open ports inside: the refusal comes before any packet, and is one sentence."""
    (closed,) = free_ports(1)
    told = set()
    with running_receiver() as inside, door(answers(INSIDE)) as through:
        for port in (inside.port, closed):
            with pytest.raises(UrlNotAllowed) as refused:
                get(through, f"http://scan.example:{port}/")
            told.add(str(refused.value))
    assert len(told) == 1


def test_errors_name_neither_host_nor_address() -> None:
    """They stand in jobs, deliveries and logs."""
    (port,) = free_ports(1)
    with door() as through, pytest.raises(OutboundError) as failed:
        get(through, f"http://{OUTSIDE}:{port}/secret")
    assert not any(part in str(failed.value) for part in (OUTSIDE, str(port), "secret"))
