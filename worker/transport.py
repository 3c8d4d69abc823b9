"""The broker transport: kombu's Redis transport, made for tickets.

Three things differ, because a ticket may be lost while a job may not (the ledger has the job):

* no copy of a message is kept for acknowledgement, which saves most of the round trips;
* when the blocking pop wakes, the rest of the prefetch credit is popped in one command;
* messages that were taken and not begun go back in one pipeline, and it is no disaster when they cannot.

Chosen by ``TIDEGATE_BROKER_TRANSPORT=bulk`` (the default); everything also runs on kombu's own transport. A
contract test pins what is overridden here to kombu's minor version.

Source: measured against kombu 5.7's ``kombu/transport/redis.py``, whose ``_brpop_read`` this follows.
"""

from __future__ import annotations

import logging
from queue import Empty
from typing import Any

import orjson
from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps
from redis.exceptions import ConnectionError, ReadOnlyError, ResponseError  # noqa: A004  # redis-py's own

logger = logging.getLogger(__name__)

#: How Redis answers a blocking pop when it has become a replica: the connection is good, the server is not.
DEMOTED = "UNBLOCKED"
#: Most messages popped at once where the prefetch count sets no limit.
MAX_POP = 256


class TicketQoS(virtual.QoS):  # type: ignore[misc]  # kombu is untyped
    """Counts the prefetch window in memory, and hands back in bulk what was not begun."""

    def restore_unacked(self) -> list[Any]:
        """Put every message that was not begun back to the head of its queue, oldest first."""
        self._flush()
        messages = list(self._delivered.values())
        self._delivered.clear()
        try:
            self.channel.put_back(messages)
        except self.channel.connection_errors as error:
            # Nothing is lost: the sweeper issues new tickets. kombu would dump the messages to a file.
            logger.warning("ticket.not_put_back count=%d error=%s", len(messages), type(error).__name__)
        return []


class Channel(redis.Channel):  # type: ignore[misc]  # kombu is untyped
    """A channel that pops in bulk and keeps no second copy."""

    ack_emulation = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.QoS = TicketQoS

    def _brpop_read(self, **options: Any) -> bool:
        try:
            try:
                reply = self.client.parse_response(self.client.connection, "BRPOP", **options)
            except self.connection_errors:
                # Disconnected, so that the next round connects afresh.
                self.client.connection.disconnect()
                raise
            except ResponseError as error:
                if not str(error).startswith(DEMOTED):
                    raise
                self.client.connection.disconnect()
                raise ConnectionError(str(error)) from error
            if not reply:
                raise Empty
            key, first = reply
            queue = bytes_to_str(key).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._hand_over(first, queue)
            self._deliver_more(key, queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def _deliver_more(self, key: bytes, queue: str) -> None:
        credit = self.qos.can_consume_max_estimate()
        count = MAX_POP if credit is None else min(credit, MAX_POP)
        if count <= 0:
            return
        for item in self.client.rpop(key, count) or ():
            self._hand_over(item, queue)

    def _hand_over(self, item: bytes, queue: str) -> None:
        """Deliver one message; what is none would end the worker, and is dropped."""
        try:
            message = orjson.loads(item)
            readable = {"delivery_tag", "delivery_info"} <= message["properties"].keys()
        except (ValueError, TypeError, KeyError, AttributeError):
            readable = False
        if readable:
            self.connection._deliver(message, queue)
        else:
            logger.error("ticket.unreadable queue=%s bytes=%d", queue, len(item))

    def put_back(self, messages: list[Any]) -> None:
        """Push messages back where they were popped from, so that the first of them is popped first again."""
        if not messages:
            return
        with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipeline:
            for message in reversed(messages):
                payload = message.serializable()
                payload["properties"]["delivery_info"]["redelivered"] = True
                info = message.delivery_info
                for queue in self._lookup(info["exchange"], info["routing_key"]):
                    key = self._q_for_pri(queue, self._get_message_priority(payload, reverse=False))
                    pipeline.rpush(key, dumps(payload))
            pipeline.execute()


class Transport(redis.Transport):  # type: ignore[misc]  # kombu is untyped
    """kombu's Redis transport with :class:`Channel`."""

    Channel = Channel
    # After a failover the old master answers READONLY: it is connected afresh until it, or its name, is a master.
    connection_errors = (*redis.Transport.connection_errors, ReadOnlyError)
