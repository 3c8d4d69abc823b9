"""Webhooks, from the end of a job to a receiver on loopback: real Redis, real Celery worker, real HTTP."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook as Oracle

from tests.integration.ledger_probe import failure
from tests.integration.outgoing import SECRET, Outgoing, outgoing
from tests.integration.receiver import BREAK_OFF, Received, Receiver, Reply, running_receiver
from tests.integration.server_process import free_ports
from tests.integration.workers import wait_until
from tidegate.client import verify
from tidegate.commands import Return
from tidegate.documents import Job
from tidegate.errors import ImageCorrupt, ModelUnreachable
from tidegate.jobs import State
from tidegate.outgoing import WEBHOOKS, take
from tidegate.webhooks.deliveries import DeliveryState, Report, delivery_id, record, redeliver, start_delivery
from tidegate.webhooks.signing import new_secret

#: What keys that are about webhooks begin with, but for how a host did.
OF_WEBHOOKS = ("delivery", "snapshot", "undelivered", "outbox:wait", "outbox:busy", "outbox:probes", "gone")


@pytest.fixture
def out(tmp_path: Path, clean_environment: None) -> Iterator[Outgoing]:
    """A place to send from."""
    with outgoing(tmp_path) as place:
        yield place


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that takes everything."""
    with running_receiver() as server:
        yield server


def message_of(request: Received) -> dict[str, Any]:
    """What a request says, once its signature is found right by another's code."""
    event: dict[str, Any] = Oracle(SECRET).verify(request.body, request.headers)
    return event


def test_end_of_a_job_is_told_with_the_job_as_the_api_shows_it(out: Outgoing, receiver: Receiver) -> None:
    """One signed POST, whose data is what GET would give, non-ASCII and all, also after the job is gone."""
    (job_id,) = out.submit(receiver, metadata={"bestellung": "Größe 42 ☕"})
    (wanted,) = out.end([job_id])
    shown = Job.from_record(out.client.job(job_id), url=f"/v1/jobs/{job_id}").model_dump(mode="json")
    out.client.redis.delete(f"{out.settings.key_prefix}job:{job_id}")
    with out.worker():
        out.wait_for(wanted, DeliveryState.DELIVERED)
    (request,) = receiver.received
    event = message_of(request)
    assert (request.method, request.path) == ("POST", "/hook")
    assert event == {"type": "job.succeeded", "timestamp": shown["finished_at"], "data": shown}
    assert event["data"]["metadata"] == {"bestellung": "Größe 42 ☕"}
    assert request.headers["content-type"] == "application/json"
    assert request.headers["webhook-id"] == wanted
    assert request.headers["tidegate-attempt"] == "1"


def test_success_after_a_pause_tells_no_error(out: Outgoing, receiver: Receiver) -> None:
    """What put the job off for a while is over, and is no more told than it is shown."""
    commands = out.client.ledger.commands
    (job_id,) = out.submit(receiver)
    out.probe.claim("batch", job_id)
    pause = Return(job_id, refund=True, error=ModelUnreachable("Triton cannot be reached."))
    out.client.ledger.run(commands.release("batch", [pause]))
    (wanted,) = out.end([job_id])
    with out.worker():
        out.wait_for(wanted, DeliveryState.DELIVERED)
    (request,) = receiver.received
    assert message_of(request)["data"]["error"] is None


def test_every_kind_of_end_is_told(out: Outgoing, receiver: Receiver) -> None:
    """A result, an error, a cancellation and a passed deadline, each by the script that writes the end."""
    commands = out.client.ledger.commands
    good, bad, unwanted, overdue = out.submit(receiver, 4, expires_in_ms=3_600_000)
    out.end([good])
    out.probe.claim("batch", bad)
    out.client.ledger.run(commands.complete("batch", [failure(bad, ImageCorrupt("It is truncated."))]))
    out.client.ledger.run(commands.cancel([unwanted]))
    out.probe.pass_deadline(overdue)
    out.probe.sweep()
    with out.worker():
        wait_until(lambda: len(receiver.received) == 4)
    told = {message["data"]["id"]: message["type"] for message in map(message_of, receiver.received)}
    assert told == {
        good: "job.succeeded",
        bad: "job.failed",
        unwanted: "job.canceled",
        overdue: "job.expired",
    }


def test_end_that_comes_twice_is_told_once(out: Outgoing, receiver: Receiver) -> None:
    """A job that two workers finish, and is canceled on top, has one end and one delivery."""
    (job_id,) = out.submit(receiver)
    out.end([job_id])
    out.end([job_id])
    out.client.ledger.run(out.client.ledger.commands.cancel([job_id]))
    assert [delivery.id for delivery in out.waiting()] == [delivery_id(job_id, State.SUCCEEDED)]


def test_only_the_events_that_were_asked_for_are_told(out: Outgoing, receiver: Receiver) -> None:
    """Others leave nothing in the outbox."""
    told, untold = out.submit(receiver, 2, events=[State.CANCELED])
    out.end([untold])
    out.client.ledger.run(out.client.ledger.commands.cancel([told]))
    assert [delivery.event for delivery in out.waiting()] == ["job.canceled"]


def test_job_without_a_webhook_owes_nothing(out: Outgoing) -> None:
    """Its end leaves nothing behind that is about webhooks."""
    out.end(out.client.submit("m", [b"image"], tickets=False))
    kinds = {key.partition(":")[0] for key in out.probe.all_keys()}
    assert kinds.isdisjoint({"outbox", "delivery", "snapshot", "undelivered", "gone"})


def test_failures_are_tried_again_under_the_same_id(out: Outgoing, receiver: Receiver) -> None:
    """500, 500, 200: three requests, one id, fresh timestamps and signatures, attempts 1 to 3, pauses that may grow."""
    receiver.replies.extend([Reply(500), Reply(503)])
    (wanted,) = out.end(out.submit(receiver))
    with out.worker():
        pauses = []
        for attempts in (1, 2):
            waiting = out.wait_for(wanted, DeliveryState.PENDING, attempts=attempts)
            assert waiting.due_ms is not None
            assert waiting.last_ms is not None
            pauses.append(waiting.due_ms - waiting.last_ms)
            # So that its timestamp, which counts seconds, is another.
            time.sleep(1)
            out.hasten(wanted)
        delivered = out.wait_for(wanted, DeliveryState.DELIVERED, attempts=3)
    assert delivered.due_ms is None
    assert pauses[0] <= 6_000
    assert pauses[1] <= 11_000
    headers = [request.headers for request in receiver.received]
    assert {header["webhook-id"] for header in headers} == {wanted}
    assert [header["tidegate-attempt"] for header in headers] == ["1", "2", "3"]
    assert len({header["webhook-timestamp"] for header in headers}) == 3
    assert len({header["webhook-signature"] for header in headers}) == 3
    assert len({request.body for request in receiver.received}) == 1
    assert all(message_of(request) for request in receiver.received)


def test_final_answers_end_it(out: Outgoing) -> None:
    """One request, and a record of how it was answered; a redirect is such an answer, and is not followed."""
    with running_receiver() as elsewhere, out.worker():
        for status in (301, 302, 307, 308, 400, 401, 404, 422):
            with running_receiver() as receiver:
                receiver.default = Reply(status, {"location": elsewhere.url}, b"a body that is nobody's business")
                (wanted,) = out.end(out.submit(receiver))
                ended = out.wait_for(wanted, DeliveryState.FAILED)
                assert receiver.ids() == [wanted]
            assert ended.status == status
            assert "body" not in ended.note
            assert out.failed()[0].id == wanted
        assert elsewhere.received == []


def test_url_that_is_gone_is_not_called_again_for_its_client(out: Outgoing, receiver: Receiver) -> None:
    """410 ends it and disables the URL, until somebody has it delivered once more and it works."""
    receiver.replies.append(Reply(410))
    (first,) = out.end(out.submit(receiver))
    with out.worker():
        assert out.wait_for(first, DeliveryState.FAILED).status == 410
        second, *_ = out.end(out.submit(receiver))
        out.wait_for(second, DeliveryState.DISABLED, attempts=0)
        (elsewhere,) = out.end(out.submit(f"{receiver.url}/other"))
        out.wait_for(elsewhere, DeliveryState.DELIVERED)
        assert receiver.ids() == [first, elsewhere]

        assert out.client.ledger.run(redeliver([second])) == ["pending"]
        out.wait_for(second, DeliveryState.DELIVERED)
        (third,) = out.end(out.submit(receiver))
        out.wait_for(third, DeliveryState.DELIVERED)
    assert receiver.ids() == [first, elsewhere, second, third]


def test_retry_after_is_honoured(out: Outgoing, receiver: Receiver) -> None:
    """The next attempt is not due before, and others to the host are held back likewise."""
    receiver.replies.append(Reply(429, {"retry-after": "7"}))
    (limited,) = out.end(out.submit(receiver))
    with out.worker():
        waiting = out.wait_for(limited, DeliveryState.PENDING)
        assert waiting.due_ms is not None
        assert waiting.last_ms is not None
        assert waiting.due_ms - waiting.last_ms >= 7_000
        out.end(out.submit(receiver))
        time.sleep(1)
        assert receiver.ids() == [limited]
        out.hasten(limited)
        wait_until(lambda: len(receiver.received) == 3)


def test_connection_that_breaks_after_the_body_is_tried_again_under_the_same_id(
    out: Outgoing, receiver: Receiver
) -> None:
    """Whether it was received is not known, so that it comes once more, and the receiver can tell."""
    receiver.replies.append(Reply(BREAK_OFF))
    (wanted,) = out.end(out.submit(receiver))
    with out.worker():
        assert out.wait_for(wanted, DeliveryState.PENDING).status is None
        out.hasten(wanted)
        out.wait_for(wanted, DeliveryState.DELIVERED, attempts=2)
    assert receiver.ids() == [wanted, wanted]


def test_delivery_that_does_not_get_through_in_time_is_dead(tmp_path: Path, clean_environment: None) -> None:
    """After the time that the operator gives it there are no more attempts, and it stands in the list of the failed."""
    (port,) = free_ports(1)
    with outgoing(tmp_path, webhook_give_up_seconds=1) as out:
        (wanted,) = out.end(out.submit(f"http://127.0.0.1:{port}/hook"))
        with out.worker():
            ended = out.wait_for(wanted, DeliveryState.DEAD, seconds=20)
        assert (ended.status, ended.due_ms) == (None, None)
        assert "reached" in ended.note
        assert [delivery.id for delivery in out.failed()] == [wanted]
        assert out.waiting() == []


def test_killed_worker_repeats_at_most_the_one_delivery_it_was_at(tmp_path: Path, clean_environment: None) -> None:
    """Killed between sending and writing it down: the same comes once more, under the same id, and nothing is lost."""
    # Of the lease, five seconds are for what comes beside the request.
    with outgoing(tmp_path, webhook_timeout_seconds=1.0) as out, running_receiver() as receiver:
        receiver.replies.append(Reply(200, delay_seconds=0.8))
        deliveries = out.end(out.submit(receiver, 3))
        with out.worker("first", queues="webhooks") as worker:
            wait_until(lambda: receiver.received)
            worker.kill_tree()
        with out.worker("second", queues="webhooks"):
            for wanted in deliveries:
                out.wait_for(wanted, DeliveryState.DELIVERED, seconds=40)
        counts = Counter(receiver.ids())
    assert set(counts) == set(deliveries)
    assert sum(counts.values()) <= len(deliveries) + 1


def test_dead_receiver_delays_nobody_else(tmp_path: Path, clean_environment: None) -> None:
    """While hosts that do not answer have more deliveries than there are threads, another's go out."""
    released = threading.Event()

    def held(_request: Received) -> Reply:
        released.wait(60)
        return Reply(500)

    with (
        outgoing(tmp_path, webhook_timeout_seconds=60.0) as out,
        running_receiver() as good,
        running_receiver() as dead,
        running_receiver() as another,
    ):
        dead.default = another.default = held
        out.end(out.submit(dead, 40) + out.submit(another, 40))
        with out.worker():
            wait_until(lambda: dead.received and another.received)
            for wanted in out.end(out.submit(good, 20)):
                out.wait_for(wanted, DeliveryState.DELIVERED)
            assert (dead.in_flight, another.in_flight) == (1, 1), "they have not answered yet"
            # Neither is known to work, so one at a time is all that they get.
            assert (len(dead.received), len(another.received)) == (1, 1)
            released.set()


def test_host_that_comes_back_is_not_stormed(tmp_path: Path, clean_environment: None) -> None:
    """500 deliveries to a dead host, all due when it comes back: rate and connections stay within the limits."""
    rate, connections = 50, 3
    (port,) = free_ports(1)
    limits = {"outbound_host_rate": rate, "outbound_host_connections": connections}
    with outgoing(tmp_path, **limits) as out:
        deliveries = out.end(out.submit(f"http://127.0.0.1:{port}/hook", 500))
        with out.worker():
            wait_until(lambda: out.delivery(deliveries[0]).attempts > 0)
            with running_receiver(port=port) as receiver:
                began = time.monotonic()
                for wanted in deliveries:
                    out.hasten(wanted)
                wait_until(lambda: len(set(receiver.ids())) == 500, seconds=60)
                # A tenth of a second's worth may come at once; each further one has its earliest moment.
                at_once = rate // 10 + 1
                for number, request in enumerate(sorted(receiver.received, key=lambda request: request.at)):
                    assert request.at - began >= (number - at_once) / rate
                assert receiver.most_in_flight <= connections


def test_two_secrets_sign_while_receivers_change(tmp_path: Path, clean_environment: None) -> None:
    """A receiver that knows either takes it, and one that knows neither does not."""
    old, new = new_secret(), new_secret()
    with outgoing(tmp_path, webhook_secret=f"{new},{old}") as out, running_receiver() as receiver:
        (wanted,) = out.end(out.submit(receiver))
        with out.worker():
            out.wait_for(wanted, DeliveryState.DELIVERED)
        (request,) = receiver.received
    for secret in (old, new, [SECRET, old]):
        assert verify(request.body, request.headers, secret)["type"] == "job.succeeded"
    with pytest.raises(ValueError, match="not signed"):
        verify(request.body, request.headers, SECRET)


def test_secrets_and_urls_are_told_to_nobody(out: Outgoing, receiver: Receiver) -> None:
    """No secret is in Redis, in a message, in an event or in a log; no URL is in a message, an event or a log."""
    url = f"{receiver.url}/hook?token=sw0rdfish"
    receiver.replies.append(Reply(500))
    with out.worker() as worker:
        (wanted,) = out.end(out.submit(url))
        out.wait_for(wanted, DeliveryState.PENDING)
        out.hasten(wanted)
        out.wait_for(wanted, DeliveryState.DELIVERED, attempts=2)
    assert "sw0rdfish" not in worker.log.read_text()
    assert SECRET not in worker.log.read_text()
    everything = b"".join(_dump(out))
    assert SECRET.encode() not in everything
    assert SECRET.removeprefix("whsec_").encode() not in everything


def test_message_says_nothing_but_an_id(out: Outgoing, receiver: Receiver) -> None:
    """What Flower can show of a delivery is its id and its lease."""
    (wanted,) = out.end(out.submit(f"{receiver.url}/hook?token=sw0rdfish"))
    taken = out.client.ledger.run(take(WEBHOOKS, out.settings, room=1))
    out.client.office.send(WEBHOOKS, taken.errands)
    messages: Any = out.client.redis.lrange(WEBHOOKS.queue, 0, -1)
    (message,) = map(orjson.loads, messages)
    assert message["headers"]["argsrepr"] == f"['{wanted}', '{taken.errands[0].lease}']"
    assert b"sw0rdfish" not in messages[0]


def test_errand_that_another_took_over_does_nothing(out: Outgoing, receiver: Receiver) -> None:
    """A message that comes late or twice finds its lease gone."""
    out.end(out.submit(receiver))
    (errand,) = out.client.ledger.run(take(WEBHOOKS, out.settings, room=1)).errands
    assert out.client.ledger.run(start_delivery(errand, out.settings)) is not None
    assert out.client.ledger.run(start_delivery(errand, out.settings)) is None


@pytest.mark.parametrize(("state", "counts"), [(DeliveryState.DELIVERED, True), (DeliveryState.FAILED, False)])
def test_word_of_a_worker_that_lost_its_lease(
    out: Outgoing,
    receiver: Receiver,
    state: DeliveryState,
    counts: bool,  # noqa: FBT001 - a table
) -> None:
    """That it was delivered counts, whoever brings it; that it was not, only from whoever is at it now."""
    (wanted,) = out.end(out.submit(receiver))
    (errand,) = out.client.ledger.run(take(WEBHOOKS, out.settings, room=1)).errands
    attempt = out.client.ledger.run(start_delivery(errand, out.settings))
    assert attempt is not None
    late = replace(attempt, lease="1")
    expected = state if counts else DeliveryState.PENDING
    assert out.client.ledger.run(record(late, Report(state, host_works=True))) == expected
    assert out.delivery(wanted).state is expected


def test_deliveries_leave_nothing_when_the_results_have_expired(tmp_path: Path, clean_environment: None) -> None:
    """Neither lines nor records outlive what they are about; how a host did is remembered for an hour."""
    with outgoing(tmp_path, result_ttl_seconds=2) as out, running_receiver() as receiver:
        receiver.replies.append(Reply(404))
        out.end(out.submit(receiver, 3))
        with out.worker():
            wait_until(lambda: len(receiver.received) == 3)
            wait_until(lambda: not out.waiting())
            assert {key.partition(":")[0] for key in out.probe.all_keys()} >= {"delivery", "snapshot", "undelivered"}
            wait_until(lambda: not any(key.startswith(OF_WEBHOOKS) for key in out.probe.all_keys()))


def _dump(out: Outgoing) -> Iterator[bytes]:
    """Every value in the Redis, of whatever kind, the broker's included."""
    keys: Any = out.client.redis.keys("*")
    for key in keys:
        yield out.client.redis.dump(key) or b""


def test_webhook_to_a_host_inside_is_refused_when_it_is_sent(tmp_path: Path, clean_environment: None) -> None:
    """What the door does not let out ends as failed, with a word that says no more than that."""
    with running_receiver() as inside, outgoing(tmp_path, outbound_allow="127.0.0.2") as out:
        (job_id,) = out.submit(inside)
        (wanted,) = out.end([job_id])
        with out.worker():
            ended = out.wait_for(wanted, DeliveryState.FAILED)
        assert inside.received == []
        assert ended.note == "The host of this URL is not a public one."
