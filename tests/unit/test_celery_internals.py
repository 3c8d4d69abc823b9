"""What of Celery, kombu and billiard is known from the inside here, pinned: a release that changes it fails loudly.

A failure asks for reading: compare the new source with what ``worker/transport.py``, ``worker/children.py``,
``worker/pool.py`` and ``worker/request.py`` make of it, then renew the digest.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

import billiard.pool
import celery
import kombu
import pytest
from celery.concurrency import asynpool, base, prefork
from celery.worker import request
from celery.worker.consumer import consumer
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual

from worker.transport import Channel, TicketQoS, Transport

#: The first digits of SHA-256 over the source of what is overridden, or relied on to the letter.
KNOWN = {
    kombu_redis.Channel._brpop_read: "c42518699709",
    kombu_redis.Channel._brpop_start: "06723d707ddf",
    kombu_redis.Channel._restore_at_beginning: "6fb09b551b47",
    kombu_redis.Channel._q_for_pri: "f3997660680d",
    kombu_redis.Channel.close: "101e9b9cdad4",
    virtual.QoS.can_consume_max_estimate: "936d3958266c",
    virtual.QoS.append: "b388f0cd6485",
    virtual.QoS.ack: "0714292b916f",
    virtual.QoS.reject: "ae08291027f3",
    virtual.QoS.restore_unacked: "42decbef03d5",
    virtual.QoS.restore_unacked_once: "c81f3d0fb29b",
    asynpool.AsynPool.flush: "a7671d710b57",
    asynpool.AsynPool.on_job_process_down: "ac53c414f342",
    asynpool.AsynPool.on_partial_read: "99d11508d733",
    billiard.pool.ApplyResult._ack: "0a37099cfacc",
    billiard.pool.ApplyResult._set: "edd668961abb",
    billiard.pool.ApplyResult.discard: "4dd334082330",
    billiard.pool.Pool.maintain_pool: "3b0ca0451760",
    prefork.TaskPool.on_start: "7fcf20251a65",
    prefork.TaskPool.on_stop: "ab83bf6652cb",
    base.BasePool.apply_async: "4db4ca91db58",
    request.Request.execute_using_pool: "7979562da58f",
    request.Request.revoked: "5132788b1bc8",
    request.Request.on_failure: "21736ec661cd",
    consumer.Consumer.on_close: "e96d425dce0a",
}


def digest_of(function: Callable[..., Any]) -> str:
    """Of its source as it is installed."""
    return hashlib.sha256(inspect.getsource(function).encode()).hexdigest()[:12]


@pytest.mark.parametrize("library", [kombu, celery], ids=["kombu", "celery"])
def test_library_is_of_the_minor_version_that_is_known(library: Any) -> None:
    """Both are held to 5.7 by the project's requirements, for this reason."""
    assert library.__version__.startswith("5.7.")


@pytest.mark.parametrize("function", KNOWN, ids=lambda function: function.__qualname__)
def test_source_is_the_one_that_was_read(function: Callable[..., Any]) -> None:
    """What is overridden or relied on has not changed since somebody looked at it."""
    assert digest_of(function) == KNOWN[function], f"read {function.__qualname__} again"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Channel._brpop_read, kombu_redis.Channel._brpop_read),
        (Channel._brpop_start, kombu_redis.Channel._brpop_start),
        (Channel._restore_at_beginning, kombu_redis.Channel._restore_at_beginning),
        (TicketQoS.append, virtual.QoS.append),
        (TicketQoS.ack, virtual.QoS.ack),
        (TicketQoS.reject, virtual.QoS.reject),
        (TicketQoS.restore_unacked, virtual.QoS.restore_unacked),
    ],
    ids=lambda function: function.__qualname__,
)
def test_override_takes_what_is_handed_to_it(ours: Callable[..., Any], theirs: Callable[..., Any]) -> None:
    """Our methods have the parameters of those in whose place they stand."""
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)


def test_transport_differs_from_kombu_s_where_it_says_so() -> None:
    """No second copy of a message is kept, and a demoted Redis counts as a lost connection."""
    assert not Channel.ack_emulation
    assert kombu_redis.Channel.ack_emulation
    assert set(kombu_redis.Transport.connection_errors) < set(Transport.connection_errors)
