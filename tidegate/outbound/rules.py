"""Where a client's URL may lead, as far as that can be told without the network. The API asks this at submission."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, ip_address, ip_network
from typing import Self
from urllib.parse import urljoin, urlsplit

import httpx
from ssrfguard import DEFAULT_DENIED, AddressTable, Block, Policy, Reach, SSRFGuardError

from tidegate.errors import SettingsError, UrlNotAllowed
from tidegate.settings import PREFIX, Settings

#: Longer ones are refused unread. Source: RFC 9110, section 4.1, asks for 8000 of servers; no image needs a quarter.
MAX_URL_CHARACTERS = 2048
DEFAULT_PORTS = {"http": 80, "https": 443}
HIGHEST_PORT = 65_535

#: What a parser may drop or read in its own way, so that two of them see two URLs.
_AMBIGUOUS = re.compile(r"[\x00-\x20\x7f\\]")
#: Top-level domains whose names are never public. Source: RFC 6761 and 6762, and ICANN's for private use.
_PRIVATE_SUFFIXES = (".localhost", ".local", ".internal", ".home.arpa")

#: All of IPv6 that is not global unicast, and the IPv4-compatible form in it; narrower entries win over these.
#: Source: RFC 4291, sections 2.4 and 2.5.5.1.
_COMPATIBLE = ip_network("::/96")
_NOT_GLOBAL = tuple(
    Block(ip_network(network), "Not global unicast", "RFC4291", Reach.DENIED)
    for network in ("::/3", "4000::/2", "8000::/1")
)
_GLOBAL_UNICAST = AddressTable(
    (*(block for block in DEFAULT_DENIED.blocks if block.network != _COMPATIBLE), *_NOT_GLOBAL)
)
_ANY_ADDRESS = AddressTable(())


@dataclass(frozen=True)
class OutboundRules:
    """What may be reached: public hosts, and what the operator has opened.

    Attributes:
        opened_names: hosts that may have any address; ``*.example`` for all below ``example``.
        public: what every other host must keep to; the opened networks are in it.
        opened: what the opened hosts must keep to.
    """

    opened_names: frozenset[str]
    public: Policy
    opened: Policy

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """The rules that an operator has set.

        Raises:
            SettingsError: an entry of ``outbound_allow`` or ``outbound_ports`` means nothing.
        """
        ports = frozenset(_ports(settings.outbound_ports))
        entries = [entry.lower() for entry in settings.outbound_allow.split(",") if entry]
        names = frozenset(entry for entry in entries if _is_name(entry))
        try:
            networks = tuple(ip_network(entry) for entry in entries if entry not in names)
            public = Policy(denied_networks=_GLOBAL_UNICAST, allowed_networks=networks, allowed_ports=ports)
        except ValueError as error:
            raise SettingsError(f"{PREFIX}OUTBOUND_ALLOW: {error}") from error
        return cls(names, public, Policy(denied_networks=_ANY_ADDRESS, allowed_ports=ports))

    def policy_for(self, host: str) -> Policy:
        """What the addresses of a host must keep to."""
        name = host.rstrip(".").lower()
        parents = (name[at:] for at, character in enumerate(name) if character == ".")
        is_opened = name in self.opened_names or any(f"*{parent}" in self.opened_names for parent in parents)
        return self.opened if is_opened else self.public

    def judge(self, text: str) -> httpx.URL:
        """The URL in the one spelling that is used from here on, if it may be called as far as it tells itself.

        An IPv4 address in any spelling becomes the dotted one; a trailing dot goes.

        Raises:
            UrlNotAllowed: it may not. Where its name leads is judged when it is connected to.
        """
        url = _parse(text)
        host = _ascii_host(url).rstrip(".")
        host = _dotted(host) or host
        port = url.port or DEFAULT_PORTS[url.scheme]
        policy = self.policy_for(host)
        if port not in policy.allowed_ports:
            raise UrlNotAllowed("The port of this URL is not one that may be called.")
        if policy is self.public and not _is_address(host) and ("." not in host or host.endswith(_PRIVATE_SUFFIXES)):
            raise UrlNotAllowed("The host of this URL is not a public one.")
        url = url.copy_with(host=host, fragment=None)
        try:
            policy.check_url(str(url))
        except SSRFGuardError as error:
            raise UrlNotAllowed("The host of this URL is not a public one.") from error
        return url

    def judge_next(self, url: httpx.URL, location: str) -> httpx.URL:
        """Where a redirect leads, judged like any other URL.

        Raises:
            UrlNotAllowed: it may not be followed.
        """
        try:
            return self.judge(urljoin(str(url), location))
        except ValueError as error:
            raise UrlNotAllowed("The URL leads on to what is no URL.") from error


def host_of(url: httpx.URL) -> str:
    """Host and port, by which requests share connections, limits and fate."""
    host = _ascii_host(url)
    bracketed = f"[{host}]" if ":" in host else host
    return f"{bracketed}:{url.port or DEFAULT_PORTS[url.scheme]}"


def _parse(text: str) -> httpx.URL:
    if len(text) > MAX_URL_CHARACTERS or _AMBIGUOUS.search(text):
        raise UrlNotAllowed(f"A URL has at most {MAX_URL_CHARACTERS} characters, none of them blank or a backslash.")
    try:
        url = httpx.URL(text)
        credentials = urlsplit(text).username is not None
    except (httpx.InvalidURL, ValueError) as error:
        raise UrlNotAllowed("This is no URL that can be called.") from error
    if url.scheme not in DEFAULT_PORTS:
        raise UrlNotAllowed("Only http and https URLs can be called.")
    if credentials or url.userinfo:
        raise UrlNotAllowed("A URL must not carry credentials.")
    if not _ascii_host(url).strip("."):
        raise UrlNotAllowed("The URL has no host.")
    return url


def _ascii_host(url: httpx.URL) -> str:
    """The host as it is looked up; an IPv6 address without its brackets."""
    return url.raw_host.decode("ascii").lower()


def _dotted(host: str) -> str | None:
    """An IPv4 address as every resolver reads it (decimal, hex, octal, shortened), in its usual spelling."""
    try:
        return str(IPv4Address(socket.inet_aton(host)))
    except (OSError, UnicodeError):
        return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_name(entry: str) -> bool:
    return not {"/", ":"} & set(entry) and not _is_address(entry)


def _ports(ranges: str) -> Iterator[int]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        if not 1 <= int(first) <= int(last or first) <= HIGHEST_PORT:
            raise SettingsError(f"{PREFIX}OUTBOUND_PORTS: {part} is no port or range of ports")
        yield from range(int(first), int(last or first) + 1)
