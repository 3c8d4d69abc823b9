"""The ledger: every job's record in Redis, changed only by Lua scripts, one script a change.

:class:`Ledger` is for workers (``redis``), :class:`AsyncLedger` for the API (``redis.asyncio``). Both carry out
the commands of ``tidegate/commands.py`` and raise StoreUnavailable when Redis does not do its part.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.exceptions import RedisError

from tidegate.commands import Command, Commands
from tidegate.jobs import JobRecord, Priority, State
from tidegate.settings import Settings
from tidegate.store import translate

T = TypeVar("T")


def script_source(name: str) -> str:
    """The Lua text of a script, with what all scripts share before it."""
    folder = files("tidegate") / "lua"
    return (folder / "common.lua").read_text() + "\n" + (folder / f"{name}.lua").read_text()


class _Reads:
    """The read-only side: plain commands in one pipeline, no script."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def job(self, pipeline: Any, job_id: str) -> None:
        pipeline.hgetall(f"{self.prefix}job:{job_id}")

    def place(self, pipeline: Any, job_id: str, model: str, priority: str) -> None:
        """The job's rank in its own queue, and the depths of the queues that go before it."""
        pipeline.zrank(f"{self.prefix}queued:{model}:{priority}", job_id)
        for earlier in list(Priority)[: list(Priority).index(Priority(priority))]:
            pipeline.zcard(f"{self.prefix}queued:{model}:{earlier}")

    @staticmethod
    def fields(reply: dict[bytes, bytes]) -> dict[str, bytes] | None:
        fields = {name.decode(): value for name, value in reply.items()}
        return fields if "state" in fields else None

    @staticmethod
    def position(replies: list[int | None]) -> int | None:
        """How many jobs go before it, or None when it is in no queue (running, over, or put off)."""
        rank, *earlier = replies
        return None if rank is None else rank + sum(depth or 0 for depth in earlier)


class Ledger:
    """The ledger for a worker: blocking, on one ``redis.Redis``.

    Every method raises StoreUnavailable when Redis cannot be reached, does not answer in time, or refuses writes.
    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self.client = client
        self.commands = Commands(settings)
        self._head = (settings.key_prefix, settings.result_ttl_seconds)
        self._reads = _Reads(settings.key_prefix)
        self._scripts: dict[str, Any] = {}

    def run(self, command: Command[T]) -> T:
        """Carry out one change."""
        script = self._scripts.get(command.script)
        if script is None:
            script = self._scripts[command.script] = self.client.register_script(script_source(command.script))
        try:
            return command.parse(script(args=[*self._head, *command.arguments]))
        except RedisError as error:
            raise translate(error) from error

    def models(self) -> list[str]:
        """The models that may have jobs that have not ended."""
        try:
            members: Any = self.client.smembers(f"{self._reads.prefix}models")
        except RedisError as error:
            raise translate(error) from error
        return sorted(member.decode() for member in members)

    def get(self, job_id: str) -> JobRecord | None:
        """Read one job, without its place in the queue; None when there is none (any more)."""
        try:
            with self.client.pipeline(transaction=False) as pipeline:
                self._reads.job(pipeline, job_id)
                (reply,) = pipeline.execute()
        except RedisError as error:
            raise translate(error) from error
        fields = self._reads.fields(reply)
        return JobRecord.from_hash(job_id, fields) if fields else None


class AsyncLedger:
    """The ledger for the API: the same commands on ``redis.asyncio``, and the same errors."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self.client = client
        self.commands = Commands(settings)
        self._head = (settings.key_prefix, settings.result_ttl_seconds)
        self._reads = _Reads(settings.key_prefix)
        self._scripts: dict[str, Any] = {}

    async def run(self, command: Command[T]) -> T:
        """Carry out one change."""
        script = self._scripts.get(command.script)
        if script is None:
            script = self._scripts[command.script] = self.client.register_script(script_source(command.script))
        try:
            return command.parse(await script(args=[*self._head, *command.arguments]))
        except RedisError as error:
            raise translate(error) from error

    async def get(self, job_id: str) -> JobRecord | None:
        """Read one job, with its place while it waits; None when there is none (any more)."""
        try:
            async with self.client.pipeline(transaction=False) as pipeline:
                self._reads.job(pipeline, job_id)
                (reply,) = await pipeline.execute()
                fields = self._reads.fields(reply)
                if fields is None:
                    return None
                position = None
                if fields["state"] == State.QUEUED.encode():
                    self._reads.place(pipeline, job_id, fields["model"].decode(), fields["priority"].decode())
                    position = self._reads.position(await pipeline.execute())
        except RedisError as error:
            raise translate(error) from error
        return JobRecord.from_hash(job_id, fields, position=position)

    async def ping(self) -> None:
        """Whether Redis answers at all."""
        try:
            await self.client.ping()
        except RedisError as error:
            raise translate(error) from error
