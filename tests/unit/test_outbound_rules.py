"""Where a client's URL may lead: every spelling of an address is judged by the address that it stands for."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from ssrfguard import SSRFGuardError

from tidegate.errors import SettingsError, UrlNotAllowed
from tidegate.outbound import OutboundRules
from tidegate.outbound.rules import MAX_URL_CHARACTERS, host_of
from tidegate.settings import load_settings


def rules(**settings: str) -> OutboundRules:
    """The rules under these ``outbound_`` settings."""
    return OutboundRules.from_settings(load_settings({}, **{f"outbound_{name}": at for name, at in settings.items()}))


INSIDE = [
    # loopback and unspecified, in the spellings that resolvers take
    "http://127.0.0.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://0x7f.0x0.0x0.0x1/",
    "http://0X7F.1/",
    "http://0177.0.0.1/",
    "http://0177.0x0.0.01/",
    "http://017700000001/",
    "http://127.0.0.1./",
    "http://127.255.255.254/",
    "http://0.0.0.0/",
    "http://0/",
    "http://0.1.2.3/",
    "http://①②⑦.⓪.⓪.①/",
    "http://１２７.０.０.１/",  # noqa: RUF001 - that they look like others is the point
    "http://127。0。0。1/",
    "http://%31%32%37.0.0.1/",
    "http://[::1]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[::]/",
    # private, shared, link-local and the rest of the special-purpose registry
    "http://10.0.0.1/",
    "http://10.1/",
    "http://172.16.0.1/",
    "http://172.31.255.255/",
    "http://192.168.1.1/",
    "http://192.168.257/",
    "http://100.64.0.1/",
    "http://169.254.169.254/latest/meta-data/",
    "http://0xa9fea9fe/",
    "http://2852039166/",
    "http://0251.0376.0251.0376/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://192.0.2.1/",
    "http://198.18.0.1/",
    "http://198.51.100.7/",
    "http://203.0.113.7/",
    "http://192.88.99.1/",
    "http://224.0.0.1/",
    "http://239.255.255.250/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
    "http://[fe80::1]/",
    "http://[fe80::1%25eth0]/",
    "http://[fec0::1]/",
    "http://[fc00::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://[2001:db8::1]/",
    "http://[3fff::1]/",
    "http://[100::1]/",
    "http://[5f00::1]/",
    # IPv4 carried in IPv6
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:7f00:1]/",
    "http://[0:0:0:0:0:ffff:a9fe:a9fe]/",
    "http://[::ffff:0:127.0.0.1]/",
    "http://[::127.0.0.1]/",
    "http://[::8.8.8.8]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b::10.0.0.1]/",
    "http://[64:ff9b:1::1]/",
    "http://[2002:7f00:1::]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:808:808::80ff:fffe]/",
    "http://[2001:0:7f00:1::f7f7:f7f7]/",
    # never given out as global unicast
    "http://[::2]/",
    "http://[4000::1]/",
    "http://[8000::1]/",
    "http://[fe00::1]/",
    # names that are only ever inside
    "http://localhost/",
    "http://LOCALHOST/",
    "http://localhost./",
    "http://a.localhost/",
    "http://redis/",
    "http://printer.local/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://router.home.arpa/",
]

PUBLIC = [
    "http://8.8.8.8/",
    "http://134744072/",
    "http://0x08080808/",
    "http://8.8.2056/",
    "http://1.1.1.1:443/",
    "https://[2001:4860:4860::8888]/",
    "http://[::ffff:8.8.8.8]/",
    "http://[64:ff9b::808:808]/",
    "http://[2002:808:808::1]/",
    "https://example.com/cat.jpg?size=1#top",
    "https://EXAMPLE.com./cat.jpg",
    "https://bücher.example/cat.jpg",
    "https://127.0.0.1.example.com/",
]

MALFORMED = [
    "",
    "cat.jpg",
    "//example.com/cat.jpg",
    "http:example.com",
    "http:///cat.jpg",
    "http://",
    "http://./",
    "ftp://example.com/",
    "file:///etc/passwd",
    "gopher://example.com/",
    "data:image/png;base64,AAAA",
    "javascript:alert(1)",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://@example.com/",
    "http://example.com:password@127.0.0.1/",
    "http://example.com\\@127.0.0.1/",
    "http://example.com\\.evil.example/",
    "http://127.0.0.1#@example.com/",
    "http://exa mple.com/",
    "http://example.com/a b",
    "http://example.com\r\nHost: inside/",
    "http://exa\tmple.com/",
    "http://example.com:0/",
    "http://example.com:22/",
    "http://example.com:6379/",
    "http://example.com:65536/",
    "http://example.com:-80/",
    "http://example.com:80:80/",
    "http://[::1/",
    "http://[example.com]/",
    "http://a..example.com/",
    "http://-/",
    "http://256.256.256.256/",
    "http://1.2.3.4.5/",
    # 8.8.8.8 to some, 10.8.8.8 to others
    "http://010.8.8.8/",
    "http://xn--/",
    f"http://example.com/{'x' * MAX_URL_CHARACTERS}",
    f"http://{'a' * 64}.example.com/",
]


def judged_address(url: str) -> str:
    """How the rules leave an address, resolved as a connection would resolve it."""
    answers: Any = socket.getaddrinfo(rules().judge(url).host, 80, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    return str(answers[0][4][0])


@pytest.mark.parametrize("url", INSIDE)
def test_url_of_an_address_inside_is_refused_in_every_spelling(url: str) -> None:
    """No spelling of an address that is not global unicast gets past submission."""
    with pytest.raises(UrlNotAllowed):
        rules().judge(url)


@pytest.mark.parametrize("url", MALFORMED)
def test_url_that_two_parsers_may_read_differently_is_refused(url: str) -> None:
    """Only plain http and https URLs to an allowed port pass."""
    with pytest.raises(UrlNotAllowed):
        rules().judge(url)


@pytest.mark.parametrize("url", PUBLIC)
def test_public_url_passes(url: str) -> None:
    """What is public is taken, in odd spellings too."""
    rules().judge(url)


@pytest.mark.parametrize("url", ["http://134744072/", "http://0x08080808/", "http://8.8.2056/"])
def test_odd_spelling_becomes_the_usual_one(url: str) -> None:
    """The Host header, the connection and the limits per host all see the same address."""
    assert rules().judge(url).host == judged_address(url) == "8.8.8.8"


def test_refusal_says_nothing_of_what_was_sent() -> None:
    """A URL may have a token in it, and refusals stand in answers and logs."""
    with pytest.raises(UrlNotAllowed) as refused:
        rules().judge("http://sw0rdfish.internal/?token=sw0rdfish")
    assert "sw0rdfish" not in str(refused.value)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1/"),
        ("127.0.0.1", "http://2130706433/"),
        ("10.0.0.0/8,::1", "http://10.9.8.7/"),
        ("10.0.0.0/8,::1", "http://[::1]/"),
        ("fd00::/8", "http://[fd00::1]/"),
        ("hooks.internal", "http://hooks.internal/"),
        ("hooks.internal", "http://HOOKS.internal./"),
        ("*.internal", "http://hooks.internal/"),
        ("*.internal", "http://a.b.internal/"),
        ("receiver", "http://receiver/"),
    ],
)
def test_operator_can_open_what_is_inside(allow: str, url: str) -> None:
    """Addresses, networks and names, each for itself."""
    rules(allow=allow).judge(url)


@pytest.mark.parametrize(
    ("allow", "url"),
    [
        ("127.0.0.1", "http://127.0.0.2/"),
        ("10.0.0.0/8", "http://[64:ff9b::7f00:1]/"),
        ("hooks.internal", "http://evilhooks.internal/"),
        ("hooks.internal", "http://a.hooks.internal/"),
        ("*.internal", "http://internal/"),
        ("127.0.0.1", "http://127.0.0.1:6379/"),
    ],
)
def test_what_is_opened_opens_nothing_else(allow: str, url: str) -> None:
    """Neither neighbours nor longer names nor other ports."""
    with pytest.raises(UrlNotAllowed):
        rules(allow=allow).judge(url)


def test_address_of_a_name_is_judged_by_the_rules_of_that_name() -> None:
    """An opened name may lead inside, and no other name may lead there."""
    door = rules(allow="hooks.internal")
    door.policy_for("hooks.internal").check_address("10.0.0.1")
    with pytest.raises(SSRFGuardError):
        door.policy_for("example.com").check_address("10.0.0.1")


@pytest.mark.parametrize("ports", ["0", "1-70000", "9-8", "443,99999"])
def test_port_that_is_none_stops_the_start(ports: str) -> None:
    """With the name of the setting."""
    with pytest.raises(SettingsError, match="TIDEGATE_OUTBOUND_PORTS"):
        rules(ports=ports)


@pytest.mark.parametrize("allow", ["10.0.0.0/33", "10.0.0.1/8", "host:80", "host/24", "64:ff9b::/96"])
def test_opening_that_means_nothing_stops_the_start(allow: str) -> None:
    """A typing mistake must not stand there as if it opened something, nor a prefix that opens everything."""
    with pytest.raises(SettingsError, match="TIDEGATE_OUTBOUND_ALLOW"):
        rules(allow=allow)


def test_ports_are_a_list_of_numbers_and_ranges() -> None:
    """All of them are open, and none beside them."""
    door = rules(ports="80,8000-8002")
    for port in (80, 8000, 8001, 8002):
        door.judge(f"http://example.com:{port}/")
    for port in (79, 81, 443, 7999, 8003):
        with pytest.raises(UrlNotAllowed):
            door.judge(f"http://example.com:{port}/")


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.com/a", "example.com:443"),
        ("http://example.com:80/b", "example.com:80"),
        ("http://[2001:4860:4860::8888]/", "[2001:4860:4860::8888]:80"),
    ],
)
def test_host_is_told_with_its_port(url: str, host: str) -> None:
    """Whatever the URL says beside, requests to one host share their limits."""
    assert host_of(rules().judge(url)) == host


def test_table_is_long_enough() -> None:
    """The promise is at least 60 spellings."""
    assert len(set(INSIDE)) >= 60
