"""Many images in few requests: an API that only notes them down, and what both clients make of its answers."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration.both_clients import CLIENTS, AnyClient
from tidegate.client import ApiUnreachable, ClientError, ImageError, NotFound, WaitTimeout
from tidegate.client.forms import (
    FORM_BYTES,
    FORM_IMAGES,
    LONGEST_PAUSE_SECONDS,
    SHORTEST_PAUSE_SECONDS,
    next_pause,
)

QUEUED: dict[str, Any] = {"status": "queued", "model": "m", "created_at": "2026-01-01T00:00:00Z"}
ENDED = {
    **QUEUED,
    "status": "succeeded",
    "finished_at": "2026-01-01T00:00:01Z",
    "result": {"predictions": [{"class_id": 7}]},
}
IMAGE = re.compile(rb"image (\d+)\r")


class FakeApi:
    """Accepts images, whose jobs are named for them; each ends at the look-up after the one that first asks for it.

    Attributes:
        forms: how many images came in each form.
        look_ups: how many ids in each look-up.
        stuck: jobs that do not end.
        gone: jobs that are no longer kept.
    """

    def __init__(self) -> None:
        self.forms: list[int] = []
        self.look_ups: list[int] = []
        self.stuck: set[str] = set()
        self.gone: set[str] = set()
        self._seen: set[str] = set()
        self._lock = threading.Lock()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        """Answer a request."""
        body = request.read()
        with self._lock:
            if request.url.path == "/v1/jobs:batch":
                ids = [number.decode() for number in IMAGE.findall(body)]
                self.forms.append(len(ids))
                return httpx.Response(202, json={"jobs": [self._accept(each) for each in ids]})
            if request.url.path == "/v1/jobs:get":
                return self._look_up(json.loads(body)["ids"])
            assert request.url.path == "/v1/jobs"
            return httpx.Response(202, json={**QUEUED, "id": "url"})

    @staticmethod
    def _accept(job_id: str) -> dict[str, Any]:
        if job_id == "13":
            return {"job": None, "problem": {"code": "image_corrupt", "detail": "It is cut off.", "status": 422}}
        return {"job": {**QUEUED, "id": job_id}, "problem": None}

    def _look_up(self, ids: list[str]) -> httpx.Response:
        self.look_ups.append(len(ids))
        ended = self._seen - self.stuck
        self._seen |= set(ids)
        jobs = [{**(ENDED if each in ended else QUEUED), "id": each} for each in ids if each not in self.gone]
        return httpx.Response(200, json={"jobs": jobs, "missing": sorted(self.gone & set(ids))})


@pytest.fixture
def api() -> FakeApi:
    """An API of the test's own."""
    return FakeApi()


@pytest.fixture(params=CLIENTS)
def client(api: FakeApi, request: pytest.FixtureRequest) -> Iterator[AnyClient]:
    """A client of it, of one kind and of the other."""
    with CLIENTS[request.param]("http://api.test", transport=httpx.MockTransport(api), retry_seconds=0) as made:
        yield made


def images(count: int) -> list[bytes]:
    """Different ones."""
    return [b"image %d" % number for number in range(count)]


def test_map_takes_a_fraction_of_a_request_an_image(api: FakeApi, client: AnyClient) -> None:
    """Each image has its outcome, whatever becomes of the others, and comes in one form."""
    outcomes = list(client.map(images(500), concurrency=100))
    assert Counter(outcome.image for outcome in outcomes) == Counter(images(500))
    (failed,) = (outcome for outcome in outcomes if outcome.error)
    assert (failed.image, type(failed.error), failed.job) == (b"image 13", ImageError, None)
    assert all(outcome.result.top.class_id == 7 for outcome in outcomes if not outcome.error)
    assert sum(api.forms) == 500
    assert max(api.forms) <= FORM_IMAGES
    assert len(api.forms) + len(api.look_ups) < 250


def test_job_that_does_not_end_holds_no_other(api: FakeApi, client: AnyClient) -> None:
    """The others' outcomes come meanwhile, and it has its own when it ends after all."""
    api.stuck = {"3"}
    outcomes = client.map(images(40), concurrency=8)
    others = {next(outcomes).image for _ in range(39)}
    assert others == set(images(40)) - {b"image 3"}
    api.stuck = set()
    (last,) = outcomes
    assert (last.image, last.error) == (b"image 3", None)


def test_job_is_waited_for_no_longer_than_asked(api: FakeApi, client: AnyClient) -> None:
    """Its outcome says which job goes on."""
    api.stuck = {"0"}
    (outcome,) = client.map(images(1), concurrency=8, timeout=0.1)
    assert isinstance(outcome.error, WaitTimeout)
    assert outcome.job is not None
    assert outcome.job.id == "0"


def test_job_that_is_gone_is_told(api: FakeApi, client: AnyClient) -> None:
    """A result that was not taken up in time is no longer kept."""
    api.gone = {"3"}
    (lost,) = (outcome for outcome in client.map(images(10), concurrency=8) if outcome.error)
    assert (lost.image, type(lost.error)) == (b"image 3", NotFound)


def test_outage_is_told_of_every_image_with_its_job(client: AnyClient, api: FakeApi, monkeypatch: Any) -> None:
    """Those that were handed in can be asked for later."""

    def broken(ids: list[str]) -> httpx.Response:
        raise httpx.ReadError("reset")

    monkeypatch.setattr(api, "_look_up", broken)
    outcomes = list(client.map(images(10), concurrency=10))
    assert all(isinstance(outcome.error, ApiUnreachable) for outcome in outcomes)
    assert sorted(outcome.job.id for outcome in outcomes if outcome.job) == sorted(map(str, range(10)))


def test_forms_are_small_in_bytes(api: FakeApi, client: AnyClient) -> None:
    """However many large images wait, no more of them are read at a time than fill one form."""
    large = [b"image %d\r" % number + bytes(FORM_BYTES // 2) for number in range(20)]
    assert len(list(client.submit_all(large, concurrency=20))) == 20
    assert max(api.forms) <= 2


def test_images_that_are_no_bytes_go_their_own_way(api: FakeApi, client: AnyClient) -> None:
    """A URL is handed in by itself, and a file that cannot be read is told, beside those in the form."""
    mixed: list[bytes | str] = [*images(5), "https://example.com/a.jpg", "nowhere.png"]
    outcomes = {outcome.image: outcome for outcome in client.submit_all(mixed, concurrency=8)}
    assert sum(api.forms) == 5
    url = outcomes["https://example.com/a.jpg"]
    assert url.job is not None
    assert url.job.id == "url"
    error = outcomes["nowhere.png"].error
    assert error is not None
    assert error.code == "unreadable_file"


def test_submit_all_waits_for_no_end(api: FakeApi, client: AnyClient) -> None:
    """It tells of jobs that are accepted, whose result nobody has yet."""
    outcomes = list(client.submit_all(images(10)))
    assert all(outcome.error is None and outcome.job is not None for outcome in outcomes)
    assert api.look_ups == []
    with pytest.raises(WaitTimeout, match="still queued"):
        _ = outcomes[0].result


@pytest.mark.parametrize(
    ("before", "some_ended", "look_seconds", "after"),
    [
        (0.02, False, 0.001, 0.03),
        (0.4, False, 0.001, LONGEST_PAUSE_SECONDS),
        (0.4, True, 0.001, SHORTEST_PAUSE_SECONDS),
        (0.02, True, 0.1, pytest.approx(0.3)),
        (0.4, False, 0.4, pytest.approx(1.2)),
    ],
)
def test_looks_take_a_quarter_of_the_time_at_most(
    before: float, *, some_ended: bool, look_seconds: float, after: float
) -> None:
    """They are frequent while jobs end, rarer while none does, and never so that an API is busy with them."""
    assert next_pause(before, some_ended=some_ended, look_seconds=look_seconds) == after


def test_bug_in_a_thread_is_raised_where_somebody_waits(client: AnyClient) -> None:
    """Rather than leaving the caller waiting for ever."""
    no_image: Any = 5
    with pytest.raises(TypeError):
        list(client.map([no_image] * 9, concurrency=8))


def test_nothing_goes_on_when_the_caller_leaves(api: FakeApi, client: AnyClient) -> None:
    """Whoever breaks off is not held, and no thread stays behind."""
    api.stuck = set(map(str, range(100)))
    outcomes = client.map(images(100), concurrency=8, timeout=0.2)
    assert isinstance(next(outcomes).error, ClientError)
    outcomes.close()
    for thread in [each for each in threading.enumerate() if each.name == "tidegate-bulk"]:
        thread.join(5)
        assert not thread.is_alive()
