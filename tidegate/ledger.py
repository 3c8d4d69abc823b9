"""The ledger: every job's record in Redis, changed only by Lua scripts, one script a change.

:class:`Ledger` is for workers (``redis``), :class:`AsyncLedger` for the API (``redis.asyncio``). Both carry out
the commands of ``tidegate/commands.py`` and raise StoreUnavailable when Redis does not do its part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.exceptions import NoScriptError, RedisError

from tidegate.commands import Command, Commands
from tidegate.jobs import LANES, JobRecord, State
from tidegate.settings import Settings
from tidegate.store import translate

T = TypeVar("T")


#: What follows ``common.lua`` in every script.
SHARED_PARTS = ("lines", "outbox", "tenants", "same", "pace")
#: What follows it in those that change no job: every call pays for what it does not need.
READING_PARTS = ("tenants", "pace")
READING_SCRIPTS = frozenset({"place", "list", "count"})


def script_source(name: str) -> str:
    """The Lua text of a script, with what all scripts share before it."""
    folder = files("tidegate") / "lua"
    parts = READING_PARTS if name in READING_SCRIPTS else SHARED_PARTS
    return "\n".join((folder / f"{part}.lua").read_text() for part in ("common", *parts, name))


def retention(settings: Settings) -> str:
    """What every script is told of how long things stay, and of lanes; see ``lua/common.lua``."""
    dead_letters = f"{settings.dead_letter_ttl_seconds} {settings.max_dead_letter_bytes}"
    return f"{settings.result_ttl_seconds} {dead_letters} {LANES}"


class _Reads:
    """The read-only side: plain commands in one pipeline, no script."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix

    def job(self, pipeline: Any, job_id: str) -> None:
        pipeline.hgetall(f"{self.prefix}job:{job_id}")

    @staticmethod
    def fields(reply: dict[bytes, bytes]) -> dict[str, bytes] | None:
        fields = {name.decode(): value for name, value in reply.items()}
        return fields if "state" in fields else None


class Ledger:
    """The ledger for a worker: blocking, on one ``redis.Redis``.

    Every method raises StoreUnavailable when Redis cannot be reached, does not answer in time, or refuses writes.
    """

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self.client = client
        self.commands = Commands(settings)
        self._head = (settings.key_prefix, retention(settings))
        self._reads = _Reads(settings.key_prefix)
        self._scripts: dict[str, Any] = {}

    def run(self, command: Command[T]) -> T:
        """Carry out one change."""
        script = self._scripts.get(command.script)
        if script is None:
            script = self._scripts[command.script] = self.client.register_script(script_source(command.script))
        arguments = [*self._head, *command.arguments]
        try:
            return command.parse(
                self._read_along(script, arguments, command.reads) if command.reads else script(args=arguments)
            )
        except RedisError as error:
            raise translate(error) from error

    def _read_along(self, script: Any, arguments: Sequence[Any], keys: Sequence[str]) -> list[Any]:
        """Run a script and read keys after it, in one round trip. No transaction: a full Redis begins none."""

        def run_and_read() -> list[Any]:
            with self.client.pipeline(transaction=False) as pipeline:
                pipeline.evalsha(script.sha, 0, *arguments)
                pipeline.mget(keys)
                return pipeline.execute()

        try:
            return run_and_read()
        except NoScriptError:
            self.client.script_load(script.script)
            return run_and_read()

    def models(self) -> list[str]:
        """The models that may have jobs that have not ended."""
        try:
            members: Any = self.client.smembers(f"{self._reads.prefix}models")
        except RedisError as error:
            raise translate(error) from error
        return sorted(member.decode() for member in members)

    def count_refused(self) -> int:
        """Count a message that a worker refused to run; gives how many those were in a result's lifetime or so."""
        key = f"{self._reads.prefix}refused"
        try:
            with self.client.pipeline() as pipeline:
                pipeline.incr(key)
                pipeline.expire(key, self.commands.settings.result_ttl_seconds)
                counted: Any = pipeline.execute()
        except RedisError as error:
            raise translate(error) from error
        return int(counted[0])

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
        self._head = (settings.key_prefix, retention(settings))
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
        (record,) = await self.get_many([job_id])
        return record if record is None else await self.placed(record)

    async def get_many(self, job_ids: Sequence[str]) -> list[JobRecord | None]:
        """Read jobs, without their places, in one round trip; None for those that there are not (any more)."""
        try:
            async with self.client.pipeline(transaction=False) as pipeline:
                for job_id in job_ids:
                    self._reads.job(pipeline, job_id)
                replies = await pipeline.execute()
        except RedisError as error:
            raise translate(error) from error
        records = []
        for job_id, reply in zip(job_ids, replies, strict=True):
            fields = self._reads.fields(reply)
            records.append(JobRecord.from_hash(job_id, fields) if fields else None)
        return records

    async def states(self, job_ids: Sequence[str]) -> dict[str, State | None]:
        """In which state jobs are, in one round trip; None for those that there are not (any more)."""
        try:
            async with self.client.pipeline(transaction=False) as pipeline:
                for job_id in job_ids:
                    pipeline.hget(f"{self.commands.prefix}job:{job_id}", "state")
                states = await pipeline.execute()
        except RedisError as error:
            raise translate(error) from error
        return {job_id: State(state.decode()) if state else None for job_id, state in zip(job_ids, states, strict=True)}

    async def placed(self, record: JobRecord) -> JobRecord:
        """The same with its place, if it waits."""
        if record.state is not State.QUEUED:
            return record
        (place,) = await self.run(self.commands.places([record.id]))
        return replace(record, position=place.position, start_in_ms=place.start_in_ms) if place else record

    async def ping(self) -> None:
        """Whether Redis answers at all."""
        try:
            await self.client.ping()
        except RedisError as error:
            raise translate(error) from error
