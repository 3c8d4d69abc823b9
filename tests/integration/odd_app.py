"""The workers' Celery app with children that images can harm: ``celery -A tests.integration.odd_app worker``.

An image that ends with one of the marks below does to its process what hostile or unlucky images do to decoders.
Nothing of this is in the workers themselves.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from tidegate.settings import Settings
from worker import child, children
from worker.app import app

__all__ = ["app"]

#: Its process is killed, as by the OOM killer.
KILLER = b"\0killer"
#: A bug of ours is met.
BUG = b"\0bug"
#: Its process grows by 64 MiB, and stays so.
GREEDY = b"\0greedy"

_hoard: list[bytearray] = []


def meet(image: bytes) -> None:
    """Suffer what an image does."""
    if image.endswith(KILLER):
        os.kill(os.getpid(), signal.SIGKILL)
    if image.endswith(BUG):
        raise RuntimeError("a bug")
    if image.endswith(GREEDY):
        _hoard.append(bytearray(os.urandom(1)) * (64 * 1024**2))


class OddChild(child.Child):
    """A child that looks at each image before it prepares it."""

    def make_prepare(self, settings: Settings) -> Callable[..., Any]:
        """What turns an encoded image into a row of the batch, unless the image has something else in mind."""
        prepare: Callable[..., Any] = super().make_prepare(settings)

        def odd(image: bytes, *arguments: Any, **options: Any) -> Any:
            meet(image)
            return prepare(image, *arguments, **options)

        return odd


child.make_children_with(OddChild)
if "ODD_LEAST_DEATHS" in os.environ:
    children.LEAST_DEATHS, children.DEATHS_A_CHILD = int(os.environ["ODD_LEAST_DEATHS"]), 0
