"""Which commands Redis carried out for whom, counted exactly.

``INFO commandstats`` counts every command, also those that a script calls inside, and does not say whose they were.
``MONITOR`` shows each command with its source: a client's address, or ``lua``. The two snapshots of the statistics
are taken in one transaction with an ``ECHO``, which marks the same two moments in the monitor's stream. So: what the
statistics counted in between, less what scripts called inside, less our own commands.
"""

from __future__ import annotations

import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import redis

from benchmarks.pace import wait_for

_LINE = re.compile(rb'^\+[\d.]+ \[\d+ (\S+)\] "(\w+)"(?: "([^"]{0,40})")?')
_CHUNK = 1 << 20
_SCRIPT = "lua"
_FINAL_WAIT_SECONDS = 30


@dataclass(frozen=True)
class CommandCount:
    """Commands between two marks.

    Attributes:
        total: what ``INFO commandstats`` counted.
        inside_scripts: of these, called by scripts.
        own: of these, sent by whoever measured.
        by_name: the rest, by name: what the clients sent, a script counted as one.
    """

    total: int
    inside_scripts: int
    own: int
    by_name: dict[str, int]

    @property
    def from_clients(self) -> int:
        """What the measured clients sent."""
        return self.total - self.inside_scripts - self.own


@dataclass
class Monitor:
    """A running ``MONITOR``, and the client whose commands are our own."""

    client: redis.Redis
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    _marks: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    _stats: dict[str, int] = field(default_factory=dict)

    def mark(self, name: str) -> None:
        """Mark this moment, in the statistics and in the stream alike."""
        with self.client.pipeline(transaction=True) as pipeline:
            pipeline.info("commandstats")
            pipeline.echo(name)
            statistics, _ = pipeline.execute()
        self._stats[name] = sum(command["calls"] for command in statistics.values())

    def between(self, first: str, second: str) -> CommandCount:
        """Count what happened between two marks."""
        wait_for(lambda: second in self._marks, seconds=_FINAL_WAIT_SECONDS, what="the monitor has caught up")
        commands = self._marks[second] - self._marks[first]
        me = str(self.client.client_info()["addr"])
        inside = sum(count for (source, _), count in commands.items() if source == _SCRIPT)
        by_name = Counter[str]()
        for (source, name), count in commands.items():
            if source not in (_SCRIPT, me):
                by_name[name] += count
        total = self._stats[second] - self._stats[first]
        own = sum(count for (source, _), count in commands.items() if source == me)
        return CommandCount(total, inside, own, dict(by_name.most_common()))

    def read(self, connection: socket.socket) -> None:
        """Take the stream in, until the connection is closed."""
        rest = b""
        while chunk := connection.recv(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\r\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        found = _LINE.match(line)
        if found is None:
            return
        source, name, argument = found[1].decode(), found[2].decode().lower(), found[3]
        self.seen[source, name] += 1
        if name == "echo" and argument is not None:
            self._marks[argument.decode()] = self.seen.copy()


@contextmanager
def monitoring(client: redis.Redis) -> Iterator[Monitor]:
    """Monitor a Redis while the block runs; this slows it down, so no speed is measured meanwhile."""
    options: Any = client.connection_pool.connection_kwargs
    monitor = Monitor(client)
    with socket.create_connection((options["host"], options["port"])) as connection:
        connection.sendall(b"MONITOR\r\n")
        thread = threading.Thread(target=monitor.read, args=(connection,), daemon=True)
        thread.start()
        try:
            yield monitor
        finally:
            connection.shutdown(socket.SHUT_RDWR)
            thread.join(_FINAL_WAIT_SECONDS)
