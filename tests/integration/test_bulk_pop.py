"""Tickets are popped many at a time, off a queue of any length."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kombu import Connection

from tests.integration.redis_server import RedisServer
from tidegate.commands import Ticket
from tidegate.jobs import Priority, new_job_id
from tidegate.settings import Settings
from tidegate.store import connect
from tidegate.tickets import TicketOffice, celery_settings, queue_of
from worker.transport import Channel, Transport

QUEUE = queue_of("popped")
WINDOW = 32
LIMIT_SECONDS = 10
#: Of which the cheapest counts.
POPS = 10


class Consumer:
    """Takes tickets off one queue as a worker does, and acknowledges them at once."""

    def __init__(self, settings: Settings) -> None:
        options = celery_settings(settings)["broker_transport_options"]
        self.client = connect(settings)
        self._connection = Connection(settings.redis_url, transport=Transport, transport_options=options)
        self.channel: Channel = self._connection.channel()
        self.channel.set_windows({QUEUE: WINDOW})
        self._messages: list[Any] = []
        self.channel.basic_consume(QUEUE, no_ack=False, callback=self._messages.append, consumer_tag="test")

    def queue_up(self, count: int) -> list[str]:
        """Issue tickets; gives their jobs' ids."""
        tickets = [Ticket(new_job_id(), "popped", Priority.NORMAL, issued_ms=1) for _ in range(count)]
        for start in range(0, count, 1000):
            TicketOffice(self.client).issue(tickets[start : start + 1000])
        return [ticket.job_id for ticket in tickets]

    def take(self) -> list[str]:
        """What one wake-up of the blocking pop brings, as ids of jobs."""
        self._messages.clear()
        self._connection.drain_events(timeout=LIMIT_SECONDS)
        for message in self._messages:
            message.ack()
        return [message.headers["id"] for message in self._messages]

    def microseconds_of_a_pop(self) -> int:
        """What Redis spends on a wake-up, the cheapest time of a few: it shares its processor."""
        costs = []
        for _ in range(POPS):
            self.client.config_resetstat()
            assert len(self.take()) == WINDOW
            stats: Any = self.client.info("commandstats")
            costs.append(sum(int(entry["usec"]) for name, entry in stats.items() if name != "cmdstat_info"))
        return min(costs)

    def close(self) -> None:
        """Both connections."""
        self._connection.release()
        self.client.close()


@pytest.fixture
def consumer(own_redis: RedisServer, settings: Settings) -> Iterator[Consumer]:
    """On a Redis of its own."""
    consumer = Consumer(settings.model_copy(update={"redis_url": own_redis.url}))
    yield consumer
    consumer.close()


def test_a_window_is_filled_in_one_call_and_in_order(consumer: Consumer) -> None:
    """Two commands bring what the window has room for, the oldest first, until nothing is left."""
    ids = consumer.queue_up(2 * WINDOW + 3)
    # The first has the script to load.
    assert consumer.take() == ids[:WINDOW]
    consumer.client.config_resetstat()
    assert consumer.take() == ids[WINDOW : 2 * WINDOW]
    stats: Any = consumer.client.info("commandstats")
    assert (stats["cmdstat_brpop"]["calls"], stats["cmdstat_evalsha"]["calls"]) == (1, 1)
    assert consumer.take() == ids[2 * WINDOW :]


def test_a_pop_costs_the_same_from_a_long_queue(consumer: Consumer) -> None:
    """Where a hundred thousand tickets wait, Redis serves others as soon as where a few hundred do."""
    consumer.queue_up(2 * POPS * WINDOW)
    from_short = consumer.microseconds_of_a_pop()
    consumer.queue_up(100_000)
    assert consumer.microseconds_of_a_pop() < 4 * from_short


def test_a_redis_that_is_demoted_between_two_pops_ends_nobody(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the blocking pop took is delivered, and the rest of the window stays where it is."""
    ids = consumer.queue_up(3)
    hand_over = consumer.channel._hand_over

    def demoted_then(item: bytes, queue: str) -> None:
        consumer.client.replicaof("127.0.0.1", "1")
        hand_over(item, queue)

    monkeypatch.setattr(consumer.channel, "_hand_over", demoted_then)
    assert consumer.take() == ids[:1]
    monkeypatch.undo()
    consumer.client.replicaof("NO", "ONE")
    assert consumer.take() == ids[1:]
