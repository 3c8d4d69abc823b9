"""How both clients carry calls out: what goes over the wire, and many images at a time in bounded memory."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.both_clients import CLIENTS, AnyClient, ClientOnLoop
from tidegate.client import ApiUnreachable, Client, ImageError, NotAuthorized, WaitTimeout

JOB = {
    "id": "j1",
    "status": "succeeded",
    "model": "m",
    "created_at": "2026-01-01T00:00:00Z",
    "finished_at": "2026-01-01T00:00:01Z",
    "result": {"predictions": [{"class_id": 967, "class_name": "espresso", "probability": 0.9}]},
}
QUEUED = {**JOB, "status": "queued", "finished_at": None, "result": None}

Answer = Callable[[httpx.Request], httpx.Response]
Make = Callable[..., AnyClient]


@pytest.fixture(params=CLIENTS)
def make(request: pytest.FixtureRequest) -> Make:
    """Makes a client of one of the two kinds, that meets the answers of a function."""

    def client(answer: Answer, base_url: str = "http://api.test", **options: Any) -> AnyClient:
        made: AnyClient = CLIENTS[request.param](base_url, transport=httpx.MockTransport(answer), **options)
        return made

    return client


def test_classify_gives_the_best_class(make: Make, tmp_path: Path) -> None:
    """A path is enough, as text or as a Path, and so are the bytes of an image."""
    photo = tmp_path / "photo.jpg"
    photo.write_bytes(b"image bytes")
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        return httpx.Response(200, json=JOB)

    with make(answer) as client:
        for image in (photo, str(photo), b"image bytes"):
            assert client.classify(image).top.class_name == "espresso"
    assert all(b"image bytes" in body for body in bodies)
    assert [b'filename="photo.jpg"' in body for body in bodies] == [True, True, False]


def test_api_key_goes_with_every_request(make: Make) -> None:
    """As a bearer token, and only where there is one."""
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json=JOB)

    with make(answer, api_key="tg_secret") as client:
        client.job("j1").refresh()
    with make(answer) as client:
        client.job("j1")
    assert seen == ["Bearer tg_secret", "Bearer tg_secret", None]


def test_address_may_have_a_path(make: Make) -> None:
    """Behind a proxy the API may stand below a prefix."""
    paths: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.path)
        return httpx.Response(200, json=JOB)

    with make(answer, base_url="http://api.test/tidegate/") as client:
        client.job("j1")
    assert paths == ["/tidegate/v1/jobs/j1"]


@pytest.mark.parametrize("kind", [httpx.ConnectError, httpx.ReadTimeout, httpx.RemoteProtocolError, httpx.ProxyError])
def test_broken_connection_is_an_error_of_the_client(make: Make, kind: type[httpx.TransportError]) -> None:
    """Nobody needs to know httpx to catch what goes wrong, and the address is told."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise kind("it broke", request=request)

    with make(answer, retry_seconds=0) as client, pytest.raises(ApiUnreachable, match=r"http://api\.test.*it broke"):
        client.models()


def test_connection_that_breaks_once_is_not_noticed(make: Make) -> None:
    """The next try goes well."""
    tries: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        tries.append(1)
        if len(tries) == 1:
            raise httpx.ReadError("reset", request=request)
        return httpx.Response(200, json=JOB)

    with make(answer) as client:
        assert client.classify(b"image").top.class_id == 967
    assert len(tries) == 2


def test_file_that_cannot_be_read_is_an_error_of_the_image(make: Make, tmp_path: Path) -> None:
    """It is told by its path, and nothing is sent."""

    def answer(request: httpx.Request) -> httpx.Response:
        raise AssertionError

    with make(answer) as client, pytest.raises(ImageError, match=r"nowhere\.jpg cannot be read") as caught:
        client.classify(tmp_path / "nowhere.jpg")
    assert caught.value.code == "unreadable_file"


@pytest.mark.parametrize("name", ["bad\udcff.jpg", 'a"b\n.jpg', "\u00e4.jpg"])
def test_file_may_have_any_name(make: Make, tmp_path: Path, name: str) -> None:
    """Also one that is no text, or that ends a line or a quotation: its bytes are sent all the same."""
    photo = tmp_path / name
    photo.write_bytes(b"image bytes")
    bodies: list[bytes] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(request.read())
        return httpx.Response(200, json=JOB)

    with make(answer) as client:
        client.classify(photo)
    (body,) = bodies
    assert body.count(b"\r\n\r\nimage bytes\r\n") == 1
    assert body.count(b"Content-Disposition") == 1


def test_wait_times_out_with_the_job(make: Make) -> None:
    """Whoever stops waiting can go on later by its id."""
    with make(lambda _: httpx.Response(200, json=QUEUED)) as client, pytest.raises(WaitTimeout) as caught:
        client.submit(b"image").wait(timeout=0.05)
    assert caught.value.job is not None
    assert caught.value.job.id == "j1"


@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_map_gives_one_outcome_an_image(make: Make, count: int) -> None:
    """Every image has its outcome, whatever becomes of the others."""

    def answer(request: httpx.Request) -> httpx.Response:
        if b"image 3\r" in request.read():
            return httpx.Response(422, json={"code": "image_corrupt", "detail": "It is cut off."})
        return httpx.Response(200, json=JOB)

    images = [b"image %d" % number for number in range(count)]
    with make(answer) as client:
        outcomes = list(client.map(images, concurrency=7))
    assert Counter(outcome.image for outcome in outcomes) == Counter(images)
    failed = [outcome for outcome in outcomes if outcome.error]
    assert [outcome.image for outcome in failed] == [b"image 3"] * (count > 3)
    for outcome in failed:
        with pytest.raises(ImageError, match="cut off"):
            _ = outcome.result
    assert all(outcome.result.top.class_id == 967 for outcome in outcomes if not outcome.error)


def test_map_takes_images_only_as_it_needs_them(make: Make) -> None:
    """However many there are, no more than ``concurrency`` are under way or waiting to be taken up by the caller."""
    taken = 0

    def images() -> Iterator[bytes]:
        nonlocal taken
        for number in range(1000):
            taken += 1
            yield b"image %d" % number

    with make(lambda _: httpx.Response(200, json=JOB)) as client:
        for given, _ in enumerate(client.map(images(), concurrency=5), start=1):
            assert taken - given <= 5
    assert taken == 1000


def test_map_has_so_many_under_way() -> None:
    """Concurrency is what it says: that many requests stand at the API at the same time."""
    threads = threading.Barrier(4, timeout=20)
    tasks = asyncio.Barrier(4)

    def answer(_: httpx.Request) -> httpx.Response:
        threads.wait()
        return httpx.Response(200, json=JOB)

    async def answer_async(_: httpx.Request) -> httpx.Response:
        await asyncio.wait_for(tasks.wait(), 20)
        return httpx.Response(200, json=JOB)

    with Client("http://api.test", transport=httpx.MockTransport(answer)) as blocking:
        assert len(list(blocking.map([b"image"] * 8, concurrency=4))) == 8
    with ClientOnLoop("http://api.test", transport=httpx.MockTransport(answer_async)) as on_loop:
        assert len(list(on_loop.map([b"image"] * 8, concurrency=4))) == 8


def test_map_can_be_left(make: Make) -> None:
    """Who breaks off sends nothing more, and is not held by jobs that do not end."""
    submitted = 0

    def answer(request: httpx.Request) -> httpx.Response:
        nonlocal submitted
        submitted += request.method == "POST"
        return httpx.Response(200, json=JOB if submitted == 1 else QUEUED)

    with make(answer) as client:
        outcomes = client.map([b"image"] * 100, concurrency=3)
        next(outcomes)
        outcomes.close()
        assert submitted <= 4


def test_map_tells_every_image_of_a_wrong_key(make: Make) -> None:
    """An error that is everybody's is in every outcome, for the caller to leave on the first."""
    refusal = {"code": "unauthorized", "detail": "The API key is wrong."}
    with make(lambda _: httpx.Response(401, json=refusal)) as client:
        outcomes = list(client.map([b"a", b"b"]))
    assert all(isinstance(outcome.error, NotAuthorized) for outcome in outcomes)


def test_jobs_are_listed_page_by_page(make: Make) -> None:
    """A page is asked for when its first job is taken, and each job can be steered."""
    pages = {"": ("j1", "j2", "c1"), "c1": ("j3", "j4", None)}
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(200, json={**JOB, "status": "canceled"})
        assert dict(request.url.params) | {"cursor": ""} == {"status": "queued", "limit": "100", "cursor": ""}
        asked.append(request.url.params.get("cursor", ""))
        *ids, following = pages[asked[-1]]
        return httpx.Response(200, json={"jobs": [{**QUEUED, "id": each} for each in ids], "next": following})

    with make(answer) as client:
        jobs = client.jobs(status="queued")
        assert [next(jobs).id, next(jobs).id] == ["j1", "j2"]
        assert asked == [""]
        assert next(jobs).cancel().status == "canceled"
        assert [job.id for job in jobs] == ["j4"]
    assert asked == ["", "c1"]
