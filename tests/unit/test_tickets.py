"""Tickets are messages of Celery's, though Celery does not write them."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Sequence
from typing import Any
from unittest.mock import MagicMock

import pytest
import redis
from celery import Celery
from kombu.transport.redis import Channel
from redis.exceptions import ConnectionError as RedisConnectionError

from tidegate.commands import Ticket
from tidegate.errors import StoreUnavailable
from tidegate.jobs import Priority
from tidegate.outgoing import WEBHOOKS, Errand
from tidegate.settings import load_settings
from tidegate.tickets import (
    CLASSIFY_TASK,
    PRIORITY_NUMBERS,
    PRIORITY_SEPARATOR,
    TicketOffice,
    celery_settings,
    list_key,
    queue_of,
)

TICKET = Ticket("019-a", "resnet", Priority.LOW, issued_ms=17, deadline_ms=1_800_000_000_500, lane=2)
#: What Celery writes and we do not: nobody reads it of a task whose result stands elsewhere.
LEFT_OUT = {
    "headers": {
        "eta", "group", "group_index", "kwargsrepr", "origin", "parent_id", "replaced_task_nesting", "retries",
        "root_id", "shadow", "stamped_headers", "stamps", "timelimit",
    },
    "properties": {"correlation_id", "delivery_mode", "expiration", "reply_to"},
}  # fmt: skip


class Pipe:
    """Keeps what is pushed in a pipeline, by list."""

    def __init__(self) -> None:
        self.lists: dict[str, list[Any]] = {}

    def lpush(self, key: str, *messages: bytes) -> None:
        """Keep it."""
        self.lists.setdefault(key, []).extend(json.loads(message) for message in messages)

    def execute(self) -> None:
        """All at once."""


@pytest.fixture
def pipe() -> Pipe:
    """Empty."""
    return Pipe()


@pytest.fixture
def office(pipe: Pipe) -> TicketOffice:
    """An office whose client writes into the pipe."""
    client = MagicMock(spec=redis.Redis)
    client.pipeline.return_value.__enter__.return_value = pipe
    return TicketOffice(client)


def written_by_celery(task: str, args: Sequence[Any], *, queue: str, **options: Any) -> dict[str, Any]:
    """The message that Celery itself publishes."""
    app = Celery("reference", set_as_current=False)
    app.config_from_object(celery_settings(load_settings({})) | {"broker_url": "memory://"})
    with app.connection_for_write() as connection:
        app.send_task(task, args=args, queue=queue, connection=connection, ignore_result=True, **options)
        message: dict[str, Any] = connection.default_channel._get(queue)
    app.close()
    return message


def test_a_ticket_is_what_celery_would_publish(office: TicketOffice, pipe: Pipe) -> None:
    """Each field has the value that ``send_task`` gives it, and what is left out says nothing."""
    office.issue([TICKET])
    ((key, (ours,)),) = pipe.lists.items()
    theirs = written_by_celery(
        CLASSIFY_TASK,
        ["resnet"],
        queue=queue_of("resnet", 2),
        task_id="019-a",
        priority=PRIORITY_NUMBERS[Priority.LOW],
        expires="2027-01-15T08:00:00.500000+00:00",
        headers={"issued_ms": 17},
    )
    assert key == f"tidegate-2.resnet{PRIORITY_SEPARATOR}6"
    for part, left_out in LEFT_OUT.items():
        known = {name: value for name, value in theirs[part].items() if name not in left_out}
        own = {"delivery_tag": ours["properties"]["delivery_tag"]} if part == "properties" else {}
        assert ours[part] == known | own
        assert left_out <= set(theirs[part])
    assert {name: ours[name] for name in ("content-type", "content-encoding")} == {
        name: theirs[name] for name in ("content-type", "content-encoding")
    }
    arguments, keywords, _ = json.loads(b64decode(theirs["body"]))
    assert json.loads(b64decode(ours["body"])) == [arguments, keywords, {}]


def test_each_message_has_a_delivery_tag_of_its_own(office: TicketOffice, pipe: Pipe) -> None:
    """A worker tells the messages that it holds by it, and a job may have two."""
    office.issue([TICKET] * 100)
    (messages,) = pipe.lists.values()
    assert len({message["properties"]["delivery_tag"] for message in messages}) == 100


def test_tickets_go_into_the_list_of_their_queue_and_priority_in_their_order(office: TicketOffice, pipe: Pipe) -> None:
    """One push a list, however they are mixed."""
    tickets = [Ticket(f"{i}", "m", list(Priority)[i % 3], issued_ms=1, lane=i % 2) for i in range(12)]
    office.issue(tickets)
    assert {key: [message["headers"]["id"] for message in messages] for key, messages in pipe.lists.items()} == {
        list_key(queue_of("m", lane), PRIORITY_NUMBERS[priority]): [
            ticket.job_id for ticket in tickets if (ticket.lane, ticket.priority) == (lane, priority)
        ]
        for lane in range(2)
        for priority in Priority
    }


def test_a_ticket_without_a_deadline_does_not_expire(office: TicketOffice, pipe: Pipe) -> None:
    """Celery would drop an expired message unseen."""
    office.issue([Ticket("a", "m", Priority.NORMAL, issued_ms=1)])
    ((message,),) = pipe.lists.values()
    assert "expires" not in message["headers"]


def test_an_errand_names_its_task_and_what_it_is_about(office: TicketOffice, pipe: Pipe) -> None:
    """As ``send_task`` would, in the queue of its kind."""
    office.send(WEBHOOKS, [Errand("delivery", "123")])
    ((key, (message,)),) = pipe.lists.items()
    assert (key, message["headers"]["task"]) == (WEBHOOKS.queue, WEBHOOKS.task)
    assert json.loads(b64decode(message["body"])) == [["delivery", "123"], {}, {}]


def test_a_broker_that_takes_nothing_is_an_outage(
    office: TicketOffice, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever redis-py calls it."""
    monkeypatch.setattr(pipe, "execute", MagicMock(side_effect=RedisConnectionError("gone")))
    with pytest.raises(StoreUnavailable):
        office.issue([TICKET])


def test_priorities_are_kept_apart_as_kombu_does() -> None:
    """It builds the lists' names so, and reads from them."""
    assert Channel.sep == PRIORITY_SEPARATOR
