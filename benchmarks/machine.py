"""Where and on what a measurement was made: the facts that go beside every figure."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parents[1]

#: Packages whose version can move a figure.
PACKAGES = (
    "celery",
    "kombu",
    "redis",
    "hiredis",
    "orjson",
    "tritonclient",
    "grpcio",
    "nvidia-pytriton",
    "numpy",
    "pillow",
    "fastapi",
    "starlette",
    "uvicorn",
    "flower",
)


def machine() -> dict[str, Any]:
    """The computer: processor, cores that this process may use, memory, kernel, and how busy it was."""
    return {
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": round(os.getloadavg()[0], 2),
    }


def versions() -> dict[str, str]:
    """Versions of our own packages; a peer tells its own."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def commit() -> str:
    """The commit that was measured, with ``-dirty`` where the working tree differs; ``unknown`` without git."""
    try:
        head = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("status", "--porcelain", "--", "api", "worker", "tidegate", "backends")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}-dirty" if changed else head


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _processor() -> str:
    if sys.platform == "linux":
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
