"""What a call sends, and what it makes of the answers: without a network, and by a clock that only pauses move."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import pytest

from api.idempotency import parse_idempotency_key
from tidegate.client import (
    ApiUnreachable,
    ClientError,
    Conflict,
    JobState,
    NotFound,
    ServerError,
    UnavailableError,
    WaitTimeout,
)
from tidegate.client.exchanges import HOLD_SECONDS, POLL_SECONDS, Exchange, Exchanges, Pause, Send
from tidegate.client.images import ImageBytes, ImageUrl
from tidegate.client.options import Options
from tidegate.client.retrying import RetryPolicy

PHOTO = ImageBytes(b"bytes", "photo.jpg")
T = TypeVar("T")
Reply = httpx.Response | ApiUnreachable


def answer(status_code: int = 200, /, *, retry_after: str | None = None, **document: Any) -> httpx.Response:
    """An answer of the API."""
    headers = {"Retry-After": retry_after} if retry_after else {}
    return httpx.Response(status_code, json=document, headers=headers, request=httpx.Request("GET", "http://api.test/"))


def job(status: str = "queued", **more: Any) -> httpx.Response:
    """An answer with a job in it."""
    moment = "2026-01-01T00:00:00Z"
    finished = None if status in ("queued", "running") else moment
    return answer(id="j1", status=status, model="m", created_at=moment, finished_at=finished, **more)


def batch(*verdicts: str) -> httpx.Response:
    """An answer that tells of many images: of each the id of its job, or the code for which there is none."""

    def item(verdict: str) -> dict[str, Any]:
        if verdict.startswith("j"):
            return {"job": {**job().json(), "id": verdict}, "problem": None}
        return {"job": None, "problem": {"code": verdict, "detail": "No.", "status": 503, "errors": None}}

    return answer(202, jobs=[item(verdict) for verdict in verdicts])


def verdicts_of(found: Sequence[JobState | ClientError]) -> list[str]:
    """As :func:`batch` has them."""
    return [each.id if isinstance(each, JobState) else each.code for each in found]


def refusal(status: int, code: str, *, retry_after: str | None = None) -> httpx.Response:
    """An answer that refuses."""
    return answer(status, retry_after=retry_after, code=code, detail="No.")


@dataclass
class Stage:
    """Plays the other side of calls: answers in the order given, each after as long as it was held.

    Attributes:
        replies: what each request meets, and after how many seconds.
        now: what the clock says.
        sent: the requests so far.
        pauses: the pauses so far, in seconds.
    """

    replies: Sequence[tuple[Reply, float]]
    now: float = 100.0
    sent: list[Send] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def exchanges(self) -> Exchanges:
        """Calls by this stage's clock; pauses of retries are as long as they may be."""
        return Exchanges(RetryPolicy(30.0), clock=lambda: self.now, chance=lambda: 1.0)

    def play(self, exchange: Exchange[T]) -> T:
        """Carry a call out."""
        replies = list(self.replies)
        try:
            wanted = next(exchange)
            while True:
                if isinstance(wanted, Pause):
                    self.pauses.append(wanted.seconds)
                    self.now += wanted.seconds
                    wanted = exchange.send(None)
                    continue
                self.sent.append(wanted)
                assert replies, "more requests than answers"
                reply, after_seconds = replies.pop(0)
                self.now += after_seconds
                wanted = exchange.throw(reply) if isinstance(reply, ApiUnreachable) else exchange.send(reply)
        except StopIteration as end:
            ended: T = end.value
        assert not replies, "more answers than requests"
        return ended


def stage(*replies: Reply | tuple[Reply, float]) -> Stage:
    """A stage on which answers come at once, unless a time is given with them."""
    return Stage([reply if isinstance(reply, tuple) else (reply, 0.0) for reply in replies])


def test_submission_is_a_form_with_the_image_and_its_options_as_text() -> None:
    """Bytes go as they are; what is no text becomes text that the API reads back."""
    play = stage(job())
    options = Options(top_k=3, metadata={"order": "4711"}, webhook_events=["job.failed", "job.expired"], model="m")
    options["regions"] = [(0, 0, 8, 8), (4, 4, 8, 8)]
    play.play(play.exchanges.submit(PHOTO, options))
    (sent,) = play.sent
    assert (sent.method, sent.path) == ("POST", "/v1/jobs")
    assert sent.body["files"] == {"image": ("photo.jpg", b"bytes")}
    fields = sent.body["data"]
    assert json.loads(fields.pop("metadata")) == {"order": "4711"}
    assert json.loads(fields.pop("regions")) == [[0, 0, 8, 8], [4, 4, 8, 8]]
    assert fields == {"top_k": "3", "webhook_events": "job.failed,job.expired", "model": "m"}
    assert "Prefer" not in sent.headers


def test_submission_of_a_url_is_json() -> None:
    """Tidegate fetches the image by itself, so only its address is sent."""
    play = stage(job())
    play.play(play.exchanges.submit(ImageUrl("https://example.com/a.jpg"), Options(top_k=3)))
    assert play.sent[0].body == {"json": {"image_url": "https://example.com/a.jpg", "top_k": 3}}


def test_repeated_submission_carries_the_same_key() -> None:
    """The API knows a repetition by its key, a quoted string, and two submissions never share one by accident."""
    play = stage(ApiUnreachable("reset"), refusal(503, "store_unavailable"), job())
    play.play(play.exchanges.submit(PHOTO, {}))
    keys = {sent.headers["Idempotency-Key"] for sent in play.sent}
    assert len(keys) == 1
    other = stage(job())
    other.play(other.exchanges.submit(PHOTO, {}))
    assert other.sent[0].headers["Idempotency-Key"] not in keys
    assert json.loads(keys.pop())


def test_key_of_the_callers_own_is_sent_as_it_is() -> None:
    """Another process may come back to the same job by it."""
    for key, sent in (("order-4711", '"order-4711"'), ('a "b" \\', '"a \\"b\\" \\\\"')):
        play = stage(job())
        play.play(play.exchanges.submit(PHOTO, {}, key=key))
        assert play.sent[0].headers["Idempotency-Key"] == sent
        assert parse_idempotency_key([sent]) == key


def test_retry_after_is_waited_for() -> None:
    """A full queue is asked again when it says, and not before."""
    play = stage(refusal(503, "queue_full", retry_after="7"), refusal(429, "rate_limited", retry_after="3"), job())
    play.play(play.exchanges.submit(PHOTO, {}))
    assert play.pauses == [7.0, 3.0]


def test_outage_that_lasts_is_told() -> None:
    """After 30 s from the first failure the caller learns of it, whatever was waited before."""
    play = stage(*[(refusal(503, "queue_full", retry_after="9"), 1.0)] * 4)
    with pytest.raises(UnavailableError, match="No"):
        play.play(play.exchanges.submit(PHOTO, {}))
    assert play.pauses == [9.0, 9.0, 9.0]


def test_refusal_is_told_at_once() -> None:
    """What the caller did wrong is not sent twice."""
    play = stage(refusal(404, "model_not_found"))
    with pytest.raises(NotFound) as caught:
        play.play(play.exchanges.submit(PHOTO, {}))
    assert caught.value.code == "model_not_found"
    assert len(play.sent) == 1


def test_answer_of_something_else_is_an_error_of_the_server() -> None:
    """A web page at the address is no job."""
    page = httpx.Response(200, html="<p>Hello</p>", request=httpx.Request("GET", "http://api.test/"))
    play = stage(page)
    with pytest.raises(ServerError, match=r"not of Tidegate's API"):
        play.play(play.exchanges.get("j1"))


def test_classification_that_ends_within_the_hold_is_one_request() -> None:
    """The answer to the submission is held until the job has ended, so nothing is polled."""
    play = stage((job("succeeded"), 3.0))
    assert play.play(play.exchanges.classify(PHOTO, {})).ended
    assert play.sent[0].headers["Prefer"] == f"wait={HOLD_SECONDS}"
    assert play.sent[0].hold_seconds == HOLD_SECONDS
    assert play.pauses == []


def test_wait_asks_again_without_a_pause_after_a_hold() -> None:
    """An end is told at the moment of the end, however long it takes."""
    held = (job(), float(HOLD_SECONDS))
    play = stage(held, held, (job("succeeded"), 1.0))
    assert play.play(play.exchanges.wait("j1")).status == "succeeded"
    assert [sent.params for sent in play.sent] == [{"wait": str(HOLD_SECONDS)}] * 3
    assert play.pauses == []


def test_wait_pauses_where_the_answer_is_not_held() -> None:
    """An API that answers at once is not asked in a tight loop, but when it says, or once a second."""
    early = job()
    early.headers["Retry-After"] = "4"
    play = stage(early, job(), job("succeeded"))
    play.play(play.exchanges.wait("j1"))
    assert play.pauses == [4.0, POLL_SECONDS]


def test_wait_ends_at_its_time_and_gives_the_job() -> None:
    """Whoever waits no longer learns which job goes on, and no request is held beyond that time."""
    play = stage((job("running"), 2.0), job("running"), job("running"))
    with pytest.raises(WaitTimeout, match="still running") as caught:
        play.play(play.exchanges.wait("j1", timeout=2.5))
    assert play.now == 102.5
    assert caught.value.job is not None
    assert caught.value.job.id == "j1"
    assert [sent.params for sent in play.sent] == [{"wait": "2"}, {}, {}]


def test_wait_survives_an_outage() -> None:
    """A restart of the API in the middle of a wait is not seen by the caller."""
    play = stage(ApiUnreachable("reset"), ApiUnreachable("refused"), job("succeeded"))
    assert play.play(play.exchanges.wait("j1")).ended
    assert len(play.pauses) == 2


def test_cancel_of_a_canceled_job_is_no_error() -> None:
    """The answer to an earlier try may have been lost; what was wanted is so."""
    play = stage(ApiUnreachable("reset"), refusal(409, "job_finished"), job("canceled"))
    assert play.play(play.exchanges.cancel("j1")).status == "canceled"


def test_cancel_of_a_job_that_is_over_is_refused() -> None:
    """Who cancels too late learns that."""
    play = stage(refusal(409, "job_finished"), job("succeeded"))
    with pytest.raises(Conflict) as caught:
        play.play(play.exchanges.cancel("j1"))
    assert caught.value.code == "job_finished"


def test_job_id_cannot_lead_to_another_path() -> None:
    """Whatever a caller takes for an id stays one part of the path."""
    play = stage(job())
    play.play(play.exchanges.get("../models?x=1#"))
    assert play.sent[0].path == "/v1/jobs/..%2Fmodels%3Fx%3D1%23"


def names_of(sent: Send) -> list[str]:
    """Of the images in a form."""
    return [name for _, (name, _) in sent.body["files"]]


def photos(count: int) -> list[ImageBytes]:
    """Images whose names are their numbers."""
    return [ImageBytes(b"bytes", str(number)) for number in range(count)]


def test_many_images_are_one_form() -> None:
    """What became of each is told in their order, and a repetition of the form carries its key."""
    play = stage(ApiUnreachable("reset"), batch("j1", "image_corrupt", "j2"))
    found = play.play(play.exchanges.submit_all(photos(3), Options(top_k=3)))
    assert verdicts_of(found) == ["j1", "image_corrupt", "j2"]
    assert [(sent.path, names_of(sent), sent.body["data"]) for sent in play.sent] == [
        ("/v1/jobs:batch", ["0", "1", "2"], {"top_k": "3"})
    ] * 2
    assert len({sent.headers["Idempotency-Key"] for sent in play.sent}) == 1


def test_images_for_which_there_is_no_room_are_sent_again_alone() -> None:
    """Under a new key, since it is another form; those that were accepted or are wrong are not sent twice."""
    play = stage(batch("queue_full", "j1", "queue_full", "image_corrupt"), batch("queue_full", "j3"), batch("j2"))
    found = play.play(play.exchanges.submit_all(photos(4), {}))
    assert verdicts_of(found) == ["j2", "j1", "j3", "image_corrupt"]
    assert list(map(names_of, play.sent)) == [["0", "1", "2", "3"], ["0", "2"], ["0"]]
    assert len({sent.headers["Idempotency-Key"] for sent in play.sent}) == 3


def test_images_that_find_no_room_for_long_are_told() -> None:
    """After as long as one image would be tried, counted from the last time that there was room for any."""
    play = stage(batch("j1", "queue_full", "queue_full"), batch("j2", "queue_full"), *[batch("queue_full")] * 7)
    found = play.play(play.exchanges.submit_all(photos(3), {}))
    assert verdicts_of(found) == ["j1", "j2", "queue_full"]
    assert sum(play.pauses) > 20


def test_form_that_is_too_large_is_halved() -> None:
    """An API may take less than we send; an image that is too large by itself is told as such."""
    large = refusal(413, "image_too_large")
    play = stage(large, batch("j0"), large, batch("j1"), large)
    assert verdicts_of(play.play(play.exchanges.submit_all(photos(3), {}))) == ["j0", "j1", "image_too_large"]


def test_answer_for_another_number_of_images_is_refused() -> None:
    """Rather than giving an image the job of another."""
    play = stage(batch("j1"))
    with pytest.raises(ServerError, match="1 images of 2"):
        play.play(play.exchanges.submit_all(photos(2), {}))


def test_jobs_are_looked_up_by_their_ids() -> None:
    """In one request, and those that are gone are not among them."""
    play = stage(answer(jobs=[job().json()], missing=["j2"]))
    assert list(play.play(play.exchanges.look_up(["j1", "j2"]))) == ["j1"]
    assert (play.sent[0].path, play.sent[0].body) == ("/v1/jobs:get", {"json": {"ids": ["j1", "j2"]}})


def test_page_of_jobs_is_asked_for_by_what_is_wanted() -> None:
    """What is not asked for is not sent."""
    play = stage(answer(jobs=[job().json()], next="c1"))
    assert play.play(play.exchanges.list_jobs(status="queued", cursor="c0")).next == "c1"
    assert play.sent[0].params == {"status": "queued", "limit": "100", "cursor": "c0"}
