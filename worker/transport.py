"""The broker transport: kombu's Redis transport, made for tickets.

Seven things differ, because a ticket may be lost while a job may not (the ledger has the job), and to be fair:

* no copy of a message is kept for acknowledgement, which saves most of the round trips;
* when the blocking pop wakes, the rest of the prefetch credit is popped in one call;
* each model has a prefetch window of its own, so that a burst on one takes no other's credit;
* a model's queues take turns, whatever the priorities in them;
* so do, now and then, the priorities of a queue, so that none waits for ever (``worker/turns.py``);
* messages that were taken and not begun go back in one pipeline, and it is no disaster when they cannot;
* what is in a message is read by orjson.

Chosen by ``TIDEGATE_BROKER_TRANSPORT=bulk`` (the default); everything also runs on kombu's own transport. A
contract test pins what is overridden here to kombu's minor version.

Source: measured against kombu 5.7's ``kombu/transport/redis.py``, whose ``_brpop_read`` this follows.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from queue import Empty
from typing import Any

import orjson
from kombu.transport import redis, virtual
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps
from kombu.utils.scheduling import round_robin_cycle
from redis.exceptions import ConnectionError, ReadOnlyError, ResponseError  # noqa: A004  # redis-py's own

from tidegate.tickets import first_queue
from worker.turns import PriorityTurns

logger = logging.getLogger(__name__)

#: How Redis answers a blocking pop when it has become a replica: the connection is good, the server is not.
DEMOTED = "UNBLOCKED"
#: Most messages popped at once where the prefetch count sets no limit.
MAX_POP = 256
JSON = "application/json"
#: Takes up to so many messages off a list, one by one. ``RPOP`` with a count would do, but Redis before 7 walks through
#: the whole list from its other end to answer it: where many tickets wait, nobody else is served meanwhile.
#: Source: ``addListRangeReply`` and ``quicklistIndex`` in Redis 6.2's ``t_list.c`` and ``quicklist.c``.
POP = """
local messages = {}
for place = 1, ARGV[1] do
  local message = redis.call('RPOP', KEYS[1])
  if not message then break end
  messages[place] = message
end
return messages
"""

#: How long the message that ends a blocking pop may lie about when nobody takes it, in seconds.
WAKE_EXPIRES_SECONDS = 10


class TicketQoS(virtual.QoS):  # type: ignore[misc]  # kombu is untyped
    """Counts the prefetch windows in memory, and hands back in bulk what was not begun."""

    def __init__(self, channel: Any, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        self._windows: Mapping[str, int] = {}
        self._held: Counter[str] = Counter()

    def set_windows(self, windows: Mapping[str, int]) -> None:
        """Most messages held of a model, by its first queue; one not named has only the prefetch count of all."""
        self._windows = windows

    def room_for(self, queue: str) -> int:
        """How many more messages of a queue may be held; the queues of a model share one window."""
        credit = self.can_consume_max_estimate()
        room: int = MAX_POP if credit is None else min(credit, MAX_POP)
        window = first_queue(queue)
        return min(room, self._windows.get(window, MAX_POP) - self._held[window])

    def append(self, message: Any, delivery_tag: str) -> None:
        """Hold one more."""
        super().append(message, delivery_tag)
        self._held[_queue_of(message)] += 1

    def ack(self, delivery_tag: str) -> None:
        """It was begun, and is no longer held."""
        self._let_go(delivery_tag)
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:  # noqa: FBT001, FBT002  # kombu's signature
        """It is given back or thrown away, and no longer held; one of a connection that is gone cannot be."""
        if delivery_tag in self._delivered:
            self._let_go(delivery_tag)
            super().reject(delivery_tag, requeue=requeue)

    def _let_go(self, delivery_tag: str) -> None:
        message = self._delivered.get(delivery_tag)
        if message is not None and delivery_tag not in self._dirty:
            queue = _queue_of(message)
            self._held[queue] -= 1
            self.channel.room_came(queue)

    def restore_unacked(self) -> list[Any]:
        """Put every message that was not begun back to the head of its queue, oldest first."""
        self._flush()
        messages = list(self._delivered.values())
        self._delivered.clear()
        self._held.clear()
        try:
            self.channel.put_back(messages)
        except Exception as error:  # noqa: BLE001  # whatever is raised here ends the worker
            # The broker is lost, and its connection half taken apart. Nothing else is: the sweeper issues new tickets.
            logger.warning("ticket.not_put_back count=%d error=%s", len(messages), type(error).__name__)
        return []


def _queue_of(message: Any) -> str:
    """The first queue of the message's model; the default exchange routes by the queue's name."""
    return first_queue(str(message.delivery_info["routing_key"]))


class QueuesWithRoom(round_robin_cycle):  # type: ignore[misc]  # kombu is untyped
    """The queues of the next blocking pop, in turns: those whose window has room.

    A pop must end early when a queue that it leaves out has room again, or when nothing more is to be taken, so it also
    waits for a list of its own, which only this channel pushes to.
    """

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self.wake_list = f"tidegate.wake.{uuid.uuid4().hex}"
        self.left_out: set[str] = set()

    def consume(self, n: int) -> list[str]:
        """Choose the queues; called when a pop is sent, and only then."""
        queues: list[str] = super().consume(n)
        chosen = [queue for queue in queues if self._channel.qos.room_for(queue) > 0]
        self.left_out = set(queues).difference(chosen)
        return [self.wake_list, *chosen] if chosen else chosen


class Message(virtual.Message):  # type: ignore[misc]  # kombu is untyped
    """A message whose body, when it is the plain JSON that may be accepted, is read by orjson."""

    def _decode(self) -> Any:
        # kombu's own JSON has types of its own, which it marks so.
        if self.content_type == JSON and JSON in (self.accept or ()) and b"__type__" not in self.body:
            with suppress(orjson.JSONDecodeError):
                return orjson.loads(self.body)
        return super()._decode()


class Channel(redis.Channel):  # type: ignore[misc]  # kombu is untyped
    """A channel that pops in bulk and keeps no second copy."""

    Message = Message
    ack_emulation = False
    _in_poll: Any
    #: Redis did not answer when a message was to be put back.
    _cut_off = False
    _takes_no_more = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.QoS = TicketQoS
        self._queue_cycle = QueuesWithRoom(self)
        self._turns = PriorityTurns(self.priority_steps)
        self._pop: Any = None

    def set_windows(self, windows: Mapping[str, int]) -> None:
        """See :meth:`TicketQoS.set_windows`."""
        self.qos.set_windows(windows)

    def room_came(self, queue: str) -> None:
        """A queue has room again: a blocking pop that was sent without it ends, and the next one has it."""
        if queue not in self._queue_cycle.left_out or not self._in_poll:
            return
        self._queue_cycle.left_out.clear()
        self._end_pop()

    def take_no_more(self) -> None:
        """End the pop that is under way, and send no other.

        Before tickets are given back: Redis would hand one to this very channel, where nobody reads it. What the
        pop had taken by then is delivered as always.
        """
        self._takes_no_more = True
        if self._in_poll and self._end_pop():
            with suppress(Empty, *self.connection_errors):
                self._brpop_read()

    def _end_pop(self) -> bool:
        try:
            with self.conn_or_acquire() as client, client.pipeline(transaction=False) as pipeline:
                pipeline.lpush(self._queue_cycle.wake_list, b"")
                pipeline.expire(self._queue_cycle.wake_list, WAKE_EXPIRES_SECONDS)
                pipeline.execute()
        except self.connection_errors as error:
            # The pop ends by itself within its timeout, and the connection is told broken where it is read.
            logger.warning("transport.not_woken error=%s", type(error).__name__)
            return False
        return True

    def _brpop_start(self, timeout: float | None = None) -> None:
        """Like kombu's, but queue by queue: a priority orders the tickets of one queue, not those of others.

        Else whoever marks all its jobs as urgent would be served before everybody else, in whichever lane they wait.
        """
        queues = [] if self._takes_no_more else self._queue_cycle.consume(len(self.active_queues))
        if not queues:
            return
        keys = [self._q_for_pri(queue, step) for queue in queues for step in self._turns.order(queue)]
        self._in_poll = self.client.connection
        self._brpop_sent_at = time.monotonic()
        self.client.connection.send_command("BRPOP", *keys, timeout if timeout is not None else self.brpop_timeout)

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
            if bytes_to_str(key) == self._queue_cycle.wake_list:
                raise Empty
            queue = bytes_to_str(key).rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(queue)
            self._hand_over(first, queue)
            self._deliver_more(key, queue)
            if self._turns.popped(queue):
                self._look_for_the_oldest(queue)
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()

    def finish_poll(self) -> None:
        """Wait for the end of a pop that is under way, a second at most: what it brings must not lie in the socket."""
        if not self._in_poll:
            return
        try:
            self._brpop_read()
        except Empty:
            return
        except self.connection_errors as error:
            logger.warning("transport.poll_not_finished error=%s", type(error).__name__)

    def _deliver_more(self, key: bytes, queue: str) -> None:
        count = self.qos.room_for(queue)
        if count <= 0:
            return
        if self._pop is None:
            self._pop = self.client.register_script(POP)
        try:
            items = self._pop(keys=[key], args=[count], client=self.client)
        except ResponseError as error:
            # Redis has become a replica since the blocking pop, say; the next one is told so too, and handles it.
            logger.warning("transport.not_popped error=%s", error)
            return
        for item in items:
            self._hand_over(item, queue)

    def _look_for_the_oldest(self, queue: str) -> None:
        heads = {step: self.client.lindex(self._q_for_pri(queue, step), -1) for step in self.priority_steps}
        self._turns.choose(queue, heads)

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

    def _restore_at_beginning(self, message: Any) -> None:
        """Put one message back to the head, where kombu without its second copies puts it at the end."""
        if self._cut_off:
            return
        try:
            self.put_back([message])
        except self.connection_errors as error:
            # The others would each wait as long for a Redis that does not answer; the sweeper issues new tickets.
            self._cut_off = True
            logger.warning("ticket.not_put_back count=1 error=%s", type(error).__name__)

    def put_back(self, messages: list[Any]) -> None:
        """Push messages back where they were popped from, so that the first of them is popped first again."""
        if not messages or self._cut_off:
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
