"""The way to Triton: a name whose address changes, and what a channel that lost its server does then."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.integration.server_process import free_ports
from tests.integration.stub_triton import MODEL, StubTriton
from tidegate.errors import InferenceError
from tidegate.settings import Settings
from worker.triton import Triton, client

NAME = "triton.test"
RECOVERY_SECONDS = 10.0


class NameServer:
    """Answers every question for an IPv4 address with ``address``, which may change, and every other with nothing."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.2)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    @property
    def port(self) -> int:
        """UDP, on loopback."""
        return int(self._socket.getsockname()[1])

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Serve while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()
            self._socket.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            try:
                question, peer = self._socket.recvfrom(512)
            except TimeoutError:
                continue
            self._socket.sendto(self._answer(question), peer)

    def _answer(self, question: bytes) -> bytes:
        """Source: RFC 1035, section 4.1. The record lives for no time at all."""
        end = question.index(b"\0", 12) + 5
        is_ipv4 = question[end - 4 : end - 2] == b"\0\1"
        head = question[:2] + b"\x81\x80" + b"\0\1" + (b"\0\1" if is_ipv4 else b"\0\0") + b"\0\0\0\0"
        record = b"\xc0\x0c\0\1\0\1\0\0\0\0\0\4" + socket.inet_aton(self.address)
        return head + question[12:end] + (record if is_ipv4 else b"")


def test_server_is_found_at_another_address_behind_the_same_name(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When it comes back elsewhere, as a container does, the same channel reaches it within ten seconds."""
    (port,) = free_ports(1)
    first, second = StubTriton(port=port, host="127.0.0.1"), StubTriton(port=port, host="127.0.0.2")
    names = NameServer("127.0.0.1")
    monkeypatch.setattr(client, "channel_target", lambda url: f"dns://127.0.0.1:{names.port}/{url}")
    settings = settings.model_copy(update={"triton_url": f"{NAME}:{port}", "triton_shm": "off"})
    first.start()
    with names.serving(), closing(Triton(settings)) as triton:
        assert models(triton) == [MODEL]
        first.stop()
        with pytest.raises(InferenceError):
            triton.repository()
        names.address = "127.0.0.2"
        second.start()
        try:
            moved = time.monotonic()
            while models(triton) != [MODEL]:
                assert time.monotonic() - moved < RECOVERY_SECONDS
        finally:
            second.stop()
    assert second.probes > 0


def models(triton: Any) -> list[str]:
    """What it tells that it serves; nothing when it cannot be reached."""
    try:
        return [row.name for row in triton.repository()]
    except InferenceError:
        time.sleep(0.2)
        return []
