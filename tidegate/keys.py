"""API keys: who may use the API, and under which name.

A key is 32 random bytes, so one round of SHA-256 hides it well: there is nothing to guess. Only the hash is stored. A
name may have several keys at a time, which is how one is replaced by another without a gap.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from tidegate.errors import SettingsError

log = structlog.get_logger(__name__)

#: What a key begins with, so that it is recognised wherever it should not be.
KEY_PREFIX = "tg_"
KEY_BYTES = 32
#: How often the file of keys is looked at, in seconds.
LOOK_SECONDS = 1.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class NewKey:
    """A key that was just made.

    Attributes:
        key: to be handed to its user; it cannot be found out again.
        line: what is to be stored: ``name:hash``.
    """

    key: str
    line: str


def new_key(name: str) -> NewKey:
    """Make a key for a name.

    Raises:
        SettingsError: the name cannot be one.
    """
    _check_name(name)
    key = KEY_PREFIX + secrets.token_urlsafe(KEY_BYTES)
    return NewKey(key, f"{name}:{_hash(key)}")


def parse_keys(lines: Iterable[str]) -> dict[str, str]:
    """Read ``name:hash`` lines; gives the names by the hashes.

    Empty lines and those that begin with ``#`` are left out.

    Raises:
        SettingsError: a line is not like that; only its number is told.
    """
    names: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, _, digest = text.partition(":")
        if not (_NAME.fullmatch(name) and _HASH.fullmatch(digest)):
            raise SettingsError(f"API key {number} is no name:hash pair; `tidegate keys new NAME` makes one")
        names[digest] = name
    return names


class ApiKeys:
    """The keys of a setting ``TIDEGATE_API_KEYS``: pairs, or a file that is read again when it changes."""

    def __init__(self, setting: str) -> None:
        """Read the keys.

        Raises:
            SettingsError: the file cannot be read, or something in it is no key, or there is none.
        """
        self._path = Path(setting) if setting.startswith("/") else None
        self._stamp = self._look()
        self._names = self._read() if self._path else parse_keys(setting.split(","))
        self._looked_at = time.monotonic()
        if setting and not self._names:
            raise SettingsError("TIDEGATE_API_KEYS has no key in it")

    def __bool__(self) -> bool:
        return bool(self._names)

    def name_of(self, key: str) -> str | None:
        """Whose key it is; None when it is nobody's. Takes as long whichever it is, and however much of it is right."""
        self._follow_the_file()
        presented = _hash(key)
        found = None
        for digest, name in self._names.items():
            if hmac.compare_digest(presented, digest):
                found = name
        return found

    def _follow_the_file(self) -> None:
        if self._path is None or time.monotonic() - self._looked_at < LOOK_SECONDS:
            return
        self._looked_at = time.monotonic()
        stamp = self._look()
        if stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._names = self._read()
        except SettingsError as error:
            # Whoever had a key keeps it: half a file must lock nobody out.
            log.warning("keys.unreadable", reason=str(error))
        else:
            log.info("keys.read", count=len(self._names))

    def _look(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size, status.st_ino

    def _read(self) -> dict[str, str]:
        assert self._path is not None
        try:
            names = parse_keys(self._path.read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeError) as error:
            raise SettingsError("The file that TIDEGATE_API_KEYS names cannot be read") from error
        if not names:
            raise SettingsError("The file that TIDEGATE_API_KEYS names has no key in it")
        return names


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise SettingsError(
            "A key's name has 1 to 64 letters, digits, '_', '.' or '-', and begins with none of these three"
        )


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="replace")).hexdigest()
