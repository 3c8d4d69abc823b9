"""This machine: the Python that runs us, and whether the embedded Triton and Redis would run here."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator

from tidegate.doctor.finding import Finding, fault, fine, warning
from tidegate.local import MissingPart
from tidegate.local.redis import find_redis_server
from tidegate.local.triton import find_triton, libpython_folder, require_platform

OLDEST_PYTHON, NEWEST_PYTHON = (3, 11), (3, 13)


def look_at_machine() -> Iterator[Finding]:
    """Python, the C library, and the parts of the embedded stack."""
    yield judge_python(sys.version_info[:2])
    yield _embedded("glibc", _glibc)
    yield _embedded("libpython", lambda: f"in {libpython_folder()}")
    yield _embedded("embedded triton", lambda: f"in {find_triton().home}")
    yield _embedded("embedded redis", lambda: str(find_redis_server()))


def judge_python(version: tuple[int, ...]) -> Finding:
    """Whether we support a version of Python, given as its first two numbers."""
    told = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    if OLDEST_PYTHON <= version <= NEWEST_PYTHON:
        return fine("python", told)
    return fault("python", told, "Use Python 3.11, 3.12 or 3.13.")


def _glibc() -> str:
    require_platform()
    return " ".join(platform.libc_ver())


def _embedded(subject: str, find: Callable[[], str]) -> Finding:
    try:
        return fine(subject, find())
    except MissingPart as missing:
        return warning(subject, str(missing), "Only the embedded stack (tidegate up, tidegate demo) needs it.")
