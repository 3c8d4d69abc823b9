"""Who is let in: whoever shows a key; or, where there are no keys, this machine alone."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

import structlog
from fastapi import Request

from tidegate.errors import Unauthorized
from tidegate.keys import ApiKeys
from tidegate.settings import Settings

log = structlog.get_logger(__name__)


class Gate:
    """Tells callers by their keys; without keys there is one caller without a name."""

    def __init__(self, settings: Settings) -> None:
        """Read the keys.

        Raises:
            SettingsError: they are wrong.
        """
        self._keys = ApiKeys(settings.api_keys)
        self._open = settings.open_access

    def announce(self) -> None:
        """Say at the start who is let in."""
        if self._keys:
            log.info("api.keys_required")
        elif self._open:
            log.warning("api.open_to_all", hint="whoever reaches this API may use it: set TIDEGATE_API_KEYS")
        else:
            log.info("api.loopback_only", hint="set TIDEGATE_API_KEYS, or TIDEGATE_OPEN_ACCESS=true")

    def tenant_of(self, request: Request) -> str:
        """Whose request it is: the name of its key, or nothing where there are no keys.

        Raises:
            Unauthorized: it has no key, or a wrong one; or comes from elsewhere, and there are no keys.
        """
        if not self._keys:
            if self._open or _is_local(request):
                return ""
            raise Unauthorized("No API keys are set up here, so only the machine itself is served.")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "")
        name = self._keys.name_of(key) if key else None
        if name is None:
            raise Unauthorized("Send an API key: 'Authorization: Bearer KEY', or 'X-API-Key: KEY'.")
        return name


def _is_local(request: Request) -> bool:
    """Whether the connection came in on the loopback interface, or over a Unix socket, which has no address."""
    return _is_loopback((request.scope.get("server") or ("", None))[0])


@lru_cache(maxsize=256)
def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return True
