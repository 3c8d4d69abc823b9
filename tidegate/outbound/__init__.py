"""The one door through which Tidegate calls an address that a client named: webhooks, and images by URL.

``rules.py`` judges a URL without the network, ``connection.py`` looks a host up once, judges every address and
connects to one of those, ``door.py`` sends a request under a limit of time. Nobody else opens a connection to a
host that a client chose.

The judgement of addresses is ssrfguard's, held to its minor version: its table is made from IANA's registries, it
takes mapped, NAT64, 6to4 and Teredo addresses for what they carry, and its look-up gives addresses and not a name, so
there is nothing to look up again. Tried against the spellings in ``tests/unit/test_outbound_rules.py`` it let
pass what its table does not list: ``::ffff:0:127.0.0.1`` (translated IPv4), ``::8.8.8.8`` (compatible IPv4) and IPv6
outside 2000::/3. So the table here is its own and more, which turns "not known to be bad" into "global unicast". Its
adapter for httpx is not used: it has no limit of time over a look-up, several addresses and a dripping answer.
"""

from __future__ import annotations

from tidegate.outbound.door import Door
from tidegate.outbound.rules import OutboundRules

__all__ = ["Door", "OutboundRules"]
