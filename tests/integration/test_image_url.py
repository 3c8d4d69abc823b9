"""Images fetched by URL: from the acceptance of a job to its ordinary place in the queue, or to its end."""

from __future__ import annotations

import gzip
import itertools
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.integration.ledger_probe import HOUR_MS, MODEL, new_job
from tests.integration.outgoing import PNG, Outgoing, outgoing
from tests.integration.receiver import Received, Receiver, Reply, running_raw, running_receiver
from tests.integration.server_process import free_ports
from tests.integration.workers import Worker, wait_until
from tidegate.fetches import add_piece, end_fetch, start_fetch
from tidegate.jobs import Destination, NewJob, State
from tidegate.outgoing import FETCHES, Errand, take
from tidegate.tickets import queue_of

MAX_BYTES = 300_000
IMAGE = PNG + bytes(range(256)) * 1000


SETTINGS: dict[str, Any] = {"fetch_timeout_seconds": 2.0, "max_image_bytes": MAX_BYTES}


@pytest.fixture
def out(tmp_path: Path, clean_environment: None) -> Iterator[Outgoing]:
    """A place to fetch from, with nobody at work yet."""
    with outgoing(tmp_path, **SETTINGS) as place:
        yield place


@pytest.fixture(scope="module")
def fetching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Outgoing, Worker]]:
    """One with a worker at work, for the tests that leave it as they found it."""
    with outgoing(tmp_path_factory.mktemp("fetching"), **SETTINGS) as place, place.worker(queues="fetch") as worker:
        yield place, worker


@pytest.fixture
def at_work(fetching: tuple[Outgoing, Worker]) -> Iterator[Outgoing]:
    """The place of that worker; what a test has left in the queue is canceled."""
    place, _ = fetching
    yield place
    open_ids: Any = place.client.redis.zrange(f"{place.probe.prefix}queued:{MODEL}:normal", 0, -1)
    place.client.ledger.run(place.client.ledger.commands.cancel([job_id.decode() for job_id in open_ids]))
    assert place.probe.waiting_bytes() == 0


@pytest.fixture
def host() -> Iterator[Receiver]:
    """A host that has the image."""
    with running_receiver() as server:
        server.default = Reply(200, {"content-type": "text/plain"}, IMAGE)
        yield server


def submit(out: Outgoing, url: str, count: int = 1, **fields: Any) -> list[str]:
    """Accept jobs whose image is at this URL; gives their ids."""
    at = Destination(url, url.split("/")[2])
    jobs: list[NewJob] = [new_job(image=b"", image_at=at, **fields) for _ in range(count)]
    admissions = out.client.ledger.run(out.client.ledger.commands.accept(jobs))
    assert [(admission.accepted_ms is None, admission.ticket) for admission in admissions] == [(False, None)] * count
    return [job.id for job in jobs]


def errand_for(out: Outgoing, job_id: str) -> Errand:
    """The next errand, which is about this job."""
    (errand,) = out.client.ledger.run(take(FETCHES, out.settings, room=1)).errands
    assert errand.id == job_id
    return errand


def wait_for_place(out: Outgoing, job_id: str) -> None:
    """Wait until a job is where it would have been had its image come with it."""
    wait_until(lambda: out.probe.trace(job_id).places - {"deadlines"} == {f"queued:{MODEL}:normal"})


def error_of(out: Outgoing, url: str, *, seconds: float = 10.0) -> dict[str, Any]:
    """How a job fails whose image is there, with a worker at work."""
    (job_id,) = submit(out, url)
    (ended,) = out.client.wait_for_end([job_id], seconds=seconds)
    assert ended.error is not None
    assert out.probe.trace(job_id).image is None
    assert out.probe.waiting_bytes() == 0
    return ended.error


def lapse(out: Outgoing, job_id: str, host: Receiver) -> None:
    """The worker that fetches it has not been heard of for too long."""
    at, lines = f"127.0.0.1:{host.port}", f"{out.probe.prefix}fetches"
    for key, member in ((f"{lines}:busy:{at}", job_id), (f"{lines}:probes", job_id), (lines, at)):
        out.client.redis.zadd(key, {member: 1}, xx=True)


def test_fetched_image_is_a_job_like_any_other(out: Outgoing, host: Receiver) -> None:
    """It gets its place, its ticket and its bytes; the host hears no more than it must, and the URL is forgotten."""
    (job_id,) = submit(out, f"{host.url}/cat.png?token=sw0rdfish", expires_in_ms=HOUR_MS)
    assert out.probe.trace(job_id).places == {f"fetching:{MODEL}", "deadlines"}
    with out.worker(queues="fetch") as worker:
        wait_for_place(out, job_id)
    trace = out.probe.trace(job_id)
    assert trace.image == IMAGE
    assert out.probe.waiting_bytes() == len(IMAGE)
    assert int(trace.record[b"bytes"]) == len(IMAGE)
    assert {b"image_url", b"image_host", b"fetches"}.isdisjoint(trace.record)
    assert out.client.redis.llen(f"{queue_of(MODEL)}\x06\x163") == 1
    assert out.probe.claim("batch", job_id) == [job_id]
    (request,) = host.received
    assert request.path == "/cat.png?token=sw0rdfish"
    assert set(request.headers) == {"host", "user-agent", "accept", "accept-encoding"}
    assert "sw0rdfish" not in worker.log.read_text()


def test_job_cannot_run_before_its_image_is_there(out: Outgoing, host: Receiver) -> None:
    """Whoever has a ticket all the same is told to wait, and nothing changes."""
    (job_id,) = submit(out, host.url)
    before = out.probe.trace(job_id)
    _, (refusal,) = out.client.ledger.run(out.client.ledger.commands.claim("batch", [job_id]))
    assert refusal.reason == "waiting"
    assert out.probe.trace(job_id) == before


def redirecting(paths: int) -> Callable[[Received], Reply]:
    """A host whose image is so many redirects away."""

    def reply(request: Received) -> Reply:
        at = int(request.path.strip("/") or 0)
        return Reply(302, {"location": f"/{at + 1}"}) if at < paths else Reply(200, {}, IMAGE)

    return reply


def test_three_redirects_are_followed(at_work: Outgoing, host: Receiver) -> None:
    """And the image at the end of them counts."""
    host.default = redirecting(3)
    (job_id,) = submit(at_work, host.url)
    wait_for_place(at_work, job_id)
    assert len(host.received) == 4


def test_fourth_redirect_and_a_circle_are_too_many(at_work: Outgoing, host: Receiver) -> None:
    """Whichever it is, the host hears of four requests and no more."""
    for default in (redirecting(4), Reply(301, {"location": "/"})):
        host.received.clear()
        host.default = default
        assert error_of(at_work, host.url)["code"] == "url_too_many_redirects"
        assert len(host.received) == 4


def test_redirect_inside_is_not_followed(tmp_path: Path, clean_environment: None) -> None:
    """Each hop is judged like the first, by a name or an address, and nobody inside hears of it."""
    with (
        outgoing(tmp_path, outbound_allow="127.0.0.2") as out,
        running_receiver() as inside,
        running_receiver(address="127.0.0.2") as host,
        out.worker(queues="fetch"),
    ):
        for location in (inside.url, f"http://localhost:{inside.port}/", f"//2130706433:{inside.port}/"):
            for status in (301, 302, 307, 308):
                host.default = Reply(status, {"location": location})
                assert error_of(out, host.url)["code"] == "url_not_allowed"
        assert inside.received == []


@pytest.mark.parametrize("status", [201, 204, 206, 304, 401, 404, 410, 500, 503])
def test_only_a_200_has_the_image(at_work: Outgoing, host: Receiver, status: int) -> None:
    """Whatever comes with another status is not looked at."""
    host.default = Reply(status, {}, b"" if status in (204, 304) else IMAGE)
    error = error_of(at_work, host.url)
    assert (error["code"], str(status) in error["message"]) == ("url_status", True)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, {"content-type": "image/png"}, b"<!doctype html><title>Not found</title>" * 100),
        Reply(200, {"content-type": "image/png"}, b""),
        Reply(200, {"content-encoding": "br", "content-type": "image/png"}, IMAGE),
    ],
    ids=["HTML", "nothing", "unknown coding"],
)
def test_what_is_no_image_is_told_by_its_bytes(at_work: Outgoing, host: Receiver, reply: Reply) -> None:
    """What the host declares counts for nothing."""
    host.default = reply
    assert error_of(at_work, host.url)["code"] == "url_not_an_image"


def gzip_bomb() -> bytes:
    """An image's first bytes, and a gigabyte of zeros after them, in about a megabyte."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    head = deflate.compress(PNG) + deflate.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the code is as if nothing had come before, so that it can be repeated.
    mebibyte = deflate.compress(bytes(1 << 20)) + deflate.flush(zlib.Z_FULL_FLUSH)
    return head + mebibyte * 1024


def test_too_large_is_counted_after_decoding(
    fetching: tuple[Outgoing, Worker], at_work: Outgoing, host: Receiver
) -> None:
    """A megabyte that inflates to a gigabyte ends at the limit, without the worker's memory growing by it."""
    _, worker = fetching
    (small,) = submit(at_work, host.url)
    wait_for_place(at_work, small)
    before = psutil.Process(worker.pid).memory_info().rss
    host.default = Reply(200, {"content-encoding": "gzip"}, gzip_bomb())
    ended = at_work.client.wait_for_end(submit(at_work, host.url, 4), seconds=20)
    assert {(job.error or {})["code"] for job in ended} == {"url_too_large"}
    assert psutil.Process(worker.pid).memory_info().rss - before < 50 * 2**20
    assert at_work.probe.waiting_bytes() == len(IMAGE)


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_coded_image_is_decoded(at_work: Outgoing, host: Receiver, coding: str) -> None:
    """A host that codes unasked is understood."""
    body = gzip.compress(IMAGE) if coding == "gzip" else zlib.compress(IMAGE)
    host.default = Reply(200, {"content-encoding": coding}, body)
    (job_id,) = submit(at_work, host.url)
    wait_for_place(at_work, job_id)
    assert at_work.probe.trace(job_id).image == IMAGE


def _endless(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + PNG)
    while True:
        connection.sendall(bytes(65536))


def _longer_than_it_says(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n" + PNG + b"ab" + bytes(MAX_BYTES))


def _drip(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + PNG)
    for _ in itertools.count():
        connection.sendall(b"x")
        time.sleep(0.1)


def _silent(connection: socket.socket) -> None:
    connection.recv(1)


def _broken_off(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n" + IMAGE[:1000])


@pytest.mark.parametrize(
    ("serve", "code"),
    [(_endless, "url_too_large"), (_drip, "url_timeout"), (_silent, "url_timeout"), (_broken_off, "url_unreachable")],
)
def test_hostile_host_costs_no_more_than_the_limits(
    at_work: Outgoing, serve: Callable[[socket.socket], None], code: str
) -> None:
    """Each way of not ending has its code, and is given up though it would go on for hours."""
    with running_raw(serve) as url:
        assert error_of(at_work, url)["code"] == code


def test_bytes_beyond_the_declared_length_are_not_the_image(at_work: Outgoing) -> None:
    """HTTP says where the answer ends, whatever comes after it."""
    with running_raw(_longer_than_it_says) as url:
        (job_id,) = submit(at_work, url)
        wait_for_place(at_work, job_id)
    assert at_work.probe.trace(job_id).image == PNG + b"ab"


def test_nobody_there_is_unreachable(at_work: Outgoing) -> None:
    """Such an end may be worth another try, and says so."""
    (port,) = free_ports(1)
    error = error_of(at_work, f"http://127.0.0.1:{port}/")
    assert (error["code"], error["retryable"]) == ("url_unreachable", True)


def test_slow_host_delays_neither_jobs_nor_other_hosts(tmp_path: Path, clean_environment: None, host: Receiver) -> None:
    """Before one of forty images of a host that does not answer has been given up, another's are all there."""
    released = threading.Event()

    def hold(_connection: socket.socket) -> None:
        released.wait(60)

    patient = {**SETTINGS, "fetch_timeout_seconds": 60.0}
    with outgoing(tmp_path, **patient) as out, running_raw(hold) as url, out.worker(queues="fetch"):
        waiting = submit(out, url, 40)
        jobs = submit(out, host.url, 20)
        (uploaded,) = out.client.submit(MODEL, [IMAGE], tickets=False)
        assert out.probe.claim("batch", uploaded) == [uploaded]
        for job_id in jobs:
            wait_for_place(out, job_id)
        assert not any(out.client.job(job_id).state.terminal for job_id in waiting)
        out.client.ledger.run(out.client.ledger.commands.cancel([uploaded, *waiting]))
        released.set()


def test_job_that_is_canceled_while_it_is_fetched_leaves_nothing(at_work: Outgoing) -> None:
    """The worker stops reading, and what it had brought is gone."""
    gone = threading.Event()

    def slowly(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + PNG)
        try:
            while True:
                connection.sendall(bytes(200_000))
                time.sleep(0.05)
        except OSError:
            gone.set()

    with running_raw(slowly) as url:
        (job_id,) = submit(at_work, url)
        wait_until(lambda: at_work.client.redis.hget(f"{at_work.probe.prefix}job:{job_id}", "fetches"))
        assert at_work.client.ledger.run(at_work.client.ledger.commands.cancel([job_id])) == ["canceled"]
        assert gone.wait(10)
    assert at_work.probe.trace(job_id).image is None
    assert not at_work.client.redis.exists(f"{at_work.probe.prefix}fetches")


def test_job_that_is_over_takes_no_more_pieces(out: Outgoing, host: Receiver) -> None:
    """Neither after a cancellation nor under a lease that another has taken over."""
    first, second = submit(out, host.url)[0], submit(out, host.url)[0]
    fetch = out.client.ledger.run(start_fetch(errand_for(out, first), out.settings))
    assert fetch is not None
    assert out.client.ledger.run(add_piece(fetch, 0, PNG))
    out.client.ledger.run(out.client.ledger.commands.cancel([first]))
    assert not out.client.ledger.run(add_piece(fetch, len(PNG), PNG))
    assert out.client.ledger.run(end_fetch(fetch, host_works=True)).state == "canceled"
    assert out.probe.trace(first).image is None
    assert out.probe.trace(second).state is State.QUEUED


def test_piece_that_is_said_twice_is_there_once(out: Outgoing, host: Receiver) -> None:
    """A reply that was lost does not double bytes."""
    (job_id,) = submit(out, host.url)
    fetch = out.client.ledger.run(start_fetch(errand_for(out, job_id), out.settings))
    assert fetch is not None
    for _ in range(2):
        assert out.client.ledger.run(add_piece(fetch, 0, PNG))
    assert out.client.ledger.run(add_piece(fetch, len(PNG), b"rest"))
    assert out.probe.trace(job_id).image == PNG + b"rest"
    assert out.probe.waiting_bytes() == len(PNG) + 4


def test_killed_worker_s_fetch_begins_again(tmp_path: Path, clean_environment: None) -> None:
    """When its lease has run out; what it had brought counts no more."""
    with outgoing(tmp_path, fetch_timeout_seconds=1.0) as out, running_receiver() as host:
        host.replies.append(Reply(200, {}, IMAGE, delay_seconds=30))
        host.default = Reply(200, {}, IMAGE)
        (job_id,) = submit(out, host.url)
        with out.worker("first", queues="fetch") as worker:
            wait_until(lambda: host.received)
            worker.kill_tree()
        with out.worker("second", queues="fetch"):
            wait_for_place(out, job_id)
        assert out.probe.trace(job_id).image == IMAGE
        assert out.probe.waiting_bytes() == len(IMAGE)


def test_image_that_kills_its_worker_each_time_ends_its_job(out: Outgoing, host: Receiver) -> None:
    """After as many attempts as the settings give."""
    (job_id,) = submit(out, host.url)
    for _ in range(out.settings.max_attempts):
        assert out.client.ledger.run(start_fetch(errand_for(out, job_id), out.settings)) is not None
        lapse(out, job_id, host)
    assert out.client.ledger.run(start_fetch(errand_for(out, job_id), out.settings)) is None
    assert (out.client.job(job_id).error or {})["code"] == "worker_lost"
    assert not out.client.redis.exists(f"{out.probe.prefix}fetches")


def test_deadline_passes_while_the_image_is_fetched(out: Outgoing, host: Receiver) -> None:
    """The job expires like any other, whoever notices first."""
    swept, started, ended = (submit(out, host.url, expires_in_ms=HOUR_MS)[0] for _ in range(3))
    out.probe.pass_deadline(swept)
    out.probe.sweep()
    errands = out.client.ledger.run(take(FETCHES, out.settings, room=8)).errands
    assert [errand.id for errand in errands] == [started]
    out.probe.pass_deadline(started)
    assert out.client.ledger.run(start_fetch(errands[0], out.settings)) is None
    fetch = out.client.ledger.run(start_fetch(errand_for(out, ended), out.settings))
    assert fetch is not None
    out.probe.pass_deadline(ended)
    assert out.client.ledger.run(end_fetch(fetch, host_works=True)).state == "expired"
    assert {out.client.job(job_id).state for job_id in (swept, started, ended)} == {State.EXPIRED}
    assert out.probe.waiting_bytes() == 0


def test_jobs_to_be_fetched_count_against_the_limits(tmp_path: Path, clean_environment: None) -> None:
    """As waiting ones; and while the images that wait take as much room as they may, none is fetched."""
    with outgoing(tmp_path, max_queued_jobs=2, max_queued_bytes=len(PNG)) as out:
        at = Destination("http://127.0.0.1/", "127.0.0.1:80")
        accept = out.client.ledger.commands.accept
        jobs = [new_job(image=b"", image_at=at), new_job(image=PNG), new_job(image=b"", image_at=at)]
        admissions = out.client.ledger.run(accept(jobs))
        assert [admission.full_of for admission in admissions] == ["", "", "jobs"]
        assert out.client.ledger.run(take(FETCHES, out.settings, room=8)).errands == ()
        out.client.ledger.run(out.client.ledger.commands.cancel([jobs[1].id]))
        assert [errand.id for errand in out.client.ledger.run(take(FETCHES, out.settings, room=8)).errands] == [
            jobs[0].id
        ]


def test_end_of_a_fetched_job_is_told_like_any_other(out: Outgoing, host: Receiver) -> None:
    """Also when it is its image that could not be fetched."""
    with running_receiver() as receiver, out.worker():
        host.default = Reply(404)
        at = Destination(host.url, f"127.0.0.1:{host.port}")
        (job_id,) = out.submit(receiver, image=b"", image_at=at)
        wait_until(lambda: receiver.ids() == [f"{job_id}-failed"])
    assert b'"url_status"' in receiver.received[0].body
