"""How many bytes of bodies a process has in hand, all requests together."""

from __future__ import annotations

from starlette.types import Scope

from tidegate.errors import UploadsFull

_SCOPE_KEY = "tidegate.body"


class BodyRoom:
    """Room for the bodies of all requests that are being read or worked on; one per process."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.used_bytes = 0

    def take(self, size: int) -> None:
        """Have room for so many more bytes.

        Raises:
            UploadsFull: there is none.
        """
        if self.used_bytes + size > self._max_bytes:
            raise UploadsFull("This process has as many bytes of uploads in hand as it may.", retry_after_seconds=1)
        self.used_bytes += size


class BodyShare:
    """What one request has of the room."""

    def __init__(self, room: BodyRoom, scope: Scope) -> None:
        self._room = room
        self._bytes = 0
        scope[_SCOPE_KEY] = self

    def take_up_to(self, size: int) -> None:
        """Have room for so many bytes in all.

        Raises:
            UploadsFull: there is none.
        """
        if size > self._bytes:
            self._room.take(size - self._bytes)
            self._bytes = size

    def give_back(self) -> None:
        """The body is no longer held."""
        self._room.used_bytes -= self._bytes
        self._bytes = 0


def let_go_of_body(scope: Scope) -> None:
    """The body has become a job: while the request waits for its end, others have its room."""
    share = scope.get(_SCOPE_KEY)
    if isinstance(share, BodyShare):
        share.give_back()
