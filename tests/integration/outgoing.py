"""What tests of webhooks and of fetches share: a worker that sends, jobs that end, and time that passes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.ledger_probe import MODEL, LedgerProbe, success
from tests.integration.receiver import Receiver
from tests.integration.redis_server import RedisServer, running_redis
from tests.integration.workers import Client, Worker, quick_settings, running_worker, wait_until
from tidegate.jobs import Destination, NewJob, State, Webhook, new_job_id
from tidegate.outgoing import WEBHOOKS
from tidegate.settings import Settings
from tidegate.webhooks.deliveries import Delivery, DeliveryState, delivery_id
from tidegate.webhooks.lookup import undelivered, waiting_deliveries
from tidegate.webhooks.signing import new_secret

SECRET = new_secret()
THREADS = 8
PNG = b"\x89PNG\r\n\x1a\n"


@dataclass
class Outgoing:
    """A Redis of its own, and what goes out of it."""

    redis: RedisServer
    settings: Settings
    client: Client
    probe: LedgerProbe
    tmp_path: Path

    def worker(self, name: str = "outbound", queues: str = "webhooks,fetch") -> AbstractContextManager[Worker]:
        """A worker with threads while the block runs."""
        extra = ["--queues", queues, "--pool", "threads"]
        return running_worker(self.settings, self.tmp_path, name=name, concurrency=THREADS, extra=extra)

    def submit(self, to: Receiver | str, count: int = 1, *, events: Sequence[State] = (), **fields: Any) -> list[str]:
        """Accept jobs whose ends are to be told; gives their ids."""
        jobs = [self._job(to, frozenset(events), **fields) for _ in range(count)]
        for start in range(0, count, 100):
            self.client.ledger.run(self.client.ledger.commands.accept(jobs[start : start + 100]))
        return [job.id for job in jobs]

    def end(self, job_ids: Sequence[str]) -> list[str]:
        """Have them succeed; gives the ids of their deliveries."""
        commands = self.client.ledger.commands
        for start in range(0, len(job_ids), 100):
            some = job_ids[start : start + 100]
            self.client.ledger.run(commands.claim("batch", some))
            self.client.ledger.run(commands.complete("batch", [success(job_id) for job_id in some]))
        return [delivery_id(job_id, State.SUCCEEDED) for job_id in job_ids]

    def delivery(self, wanted: str) -> Delivery:
        """One delivery as it stands."""
        fields: Any = self.client.redis.hgetall(f"{self.settings.key_prefix}delivery:{wanted}")
        return Delivery.from_hash(wanted, {name.decode(): value for name, value in fields.items()})

    def wait_for(self, wanted: str, state: DeliveryState, *, attempts: int = 1, seconds: float = 30.0) -> Delivery:
        """Wait until a delivery is in that state after so many attempts at least, and nobody is at it."""

        def reached() -> bool:
            now = self.delivery(wanted)
            busy = self._busy(wanted)
            return now.state is state and now.attempts >= attempts and not busy

        wait_until(reached, seconds=seconds, what=f"{wanted} {state} after {attempts}")
        return self.delivery(wanted)

    def hasten(self, wanted: str) -> None:
        """Its next attempt is due now."""
        host = self.delivery(wanted).host
        lines = self.settings.key_prefix + WEBHOOKS.lines
        if self.client.redis.zadd(f"{lines}:wait:{host}", {wanted: 1}, xx=True, ch=True):
            self.client.redis.hdel(f"{lines}:pace:{host}", "hold_ms")
            self.client.redis.zadd(lines, {host: 1})
            self.client.redis.publish(f"{self.settings.key_prefix}lines", WEBHOOKS.lines)

    def waiting(self) -> list[Delivery]:
        """Those that are not over."""
        return waiting_deliveries(self.client.redis, self.settings, most=10_000)

    def failed(self) -> list[Delivery]:
        """Those that are over and were not delivered."""
        return undelivered(self.client.redis, self.settings, most=10_000)

    def _busy(self, wanted: str) -> bool:
        host = self.delivery(wanted).host
        return self.client.redis.zscore(f"{self.settings.key_prefix}outbox:busy:{host}", wanted) is not None

    def _job(self, to: Receiver | str, events: frozenset[State], **fields: Any) -> NewJob:
        url = to if isinstance(to, str) else f"{to.url}/hook"
        host = url.split("/")[2]
        job_id = new_job_id()
        webhook = Webhook(Destination(url, host), f"/v1/jobs/{job_id}", events)
        return NewJob(**{"id": job_id, "model": MODEL, "image": PNG, "webhook": webhook, **fields})


@contextmanager
def outgoing(tmp_path: Path, **settings: Any) -> Iterator[Outgoing]:
    """Set it up while the block runs; every port of loopback is open."""
    with running_redis(tmp_path) as redis:
        opened = {"outbound_allow": "127.0.0.1", "outbound_ports": "1-65535", "webhook_secret": SECRET}
        chosen = quick_settings(redis.url, "127.0.0.1:1", **{**opened, **settings})
        client = Client(chosen)
        try:
            yield Outgoing(redis, chosen, client, LedgerProbe(client.ledger), tmp_path)
        finally:
            client.close()
