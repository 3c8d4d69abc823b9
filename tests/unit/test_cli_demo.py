"""How the demo talks to the API, and the table that it prints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from tidegate.cli import classify as module
from tidegate.cli.classify import classify
from tidegate.cli.table import job_table
from tidegate.local.parts import PartFailed

Handler = Callable[[httpx.Request], httpx.Response]


def job(status: str, **fields: Any) -> dict[str, Any]:
    """A job as the API shows it."""
    return {
        "id": "one",
        "status": status,
        "result": None,
        "error": None,
        "timings": None,
        "batch": None,
        "urls": {"get": "/v1/jobs/one"},
    } | fields


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """A file to send."""
    file = tmp_path / "coffee.jpg"
    file.write_bytes(b"the bytes of a photo")
    return file


def api(handler: Handler) -> httpx.Client:
    """A client of an API that is a function."""
    return httpx.Client(base_url="http://api", transport=httpx.MockTransport(handler))


def api_of(*answers: httpx.Response) -> httpx.Client:
    """A client of an API that gives these answers, one after the other."""
    rest: Iterator[httpx.Response] = iter(answers)
    return api(lambda _request: next(rest))


def test_classify_sends_the_photo_as_the_part_image(photo: Path) -> None:
    """The bytes of the file reach the API as they are."""
    requests: list[httpx.Request] = []

    def handler(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(202, json=job("succeeded"))

    classify([photo], client=api(handler), pause=lambda _seconds: None)
    (request,) = requests
    assert (request.method, request.url.path) == ("POST", "/v1/jobs")
    assert b'name="image"; filename="coffee.jpg"' in request.content
    assert b"the bytes of a photo" in request.content


class Clock:
    """A clock on which only pauses take time.

    Attributes:
        pauses: all that were asked for, in seconds.
    """

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        """What it shows."""
        return sum(pause for pause in self.pauses if pause > 0)

    def pause(self, seconds: float) -> None:
        """Let it go on."""
        self.pauses.append(seconds)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the module under test."""
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_classify_polls_at_the_pace_that_the_api_asks_for(photo: Path, clock: Clock) -> None:
    """Between two looks at a job lies what Retry-After says, and its end ends the polling."""
    client = api_of(
        httpx.Response(202, json=job("queued"), headers={"Retry-After": "3"}),
        httpx.Response(200, json=job("running"), headers={"Retry-After": "1"}),
        httpx.Response(200, json=job("succeeded")),
    )
    (done,) = classify([photo], client=client, pause=clock.pause)
    assert done["status"] == "succeeded"
    assert clock.pauses == [3, 1]


def test_classify_does_not_wait_again_for_what_it_has_waited_for(photo: Path, clock: Clock) -> None:
    """Jobs that were sent together are due together: the second needs no pause after that of the first."""

    def handler(request: httpx.Request) -> httpx.Response:
        status = "queued" if request.method == "POST" else "succeeded"
        return httpx.Response(200, json=job(status), headers={"Retry-After": "2"})

    classify([photo, photo], client=api(handler), pause=clock.pause)
    assert clock.pauses == [2, 0]


def test_classify_says_what_the_api_answered_when_it_refuses_a_photo(photo: Path) -> None:
    """A refusal names the photo, the status and the API's own words."""
    client = api_of(httpx.Response(503, text="no models yet"))
    with pytest.raises(PartFailed, match=r"coffee\.jpg: the API answers 503: no models yet"):
        classify([photo], client=client, pause=lambda _seconds: None)


def test_classify_gives_up_on_a_job_that_does_not_end(photo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo ends by itself, whatever becomes of a job."""
    monkeypatch.setattr(module, "JOB_SECONDS", 0)
    client = api(lambda _request: httpx.Response(200, json=job("queued")))
    with pytest.raises(PartFailed, match="job one is still queued"):
        classify([photo], client=client, pause=lambda _seconds: None)


def test_classify_says_that_the_api_does_not_answer(photo: Path) -> None:
    """A connection that breaks is told as what it is."""

    def handler(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(PartFailed, match="the API does not answer: refused"):
        classify([photo], client=api(handler), pause=lambda _seconds: None)


def rendered(photos: list[str], jobs: list[dict[str, Any]]) -> list[list[str]]:
    """The table's rows as lists of cells."""
    console = Console(width=120)
    with console.capture() as capture:
        console.print(job_table(photos, jobs))
    lines = [line.split("│")[1:-1] for line in capture.get().splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line] for line in lines]


def test_table_shows_classes_timings_and_batch_of_a_job() -> None:
    """A row tells what the photo shows, how long each step took, and how many shared the call."""
    predictions = [
        {"class_name": "espresso", "probability": 0.9571},
        {"class_name": "cup", "probability": 0.0131},
    ]
    timings = {"queued_ms": 3.14, "preprocess_ms": 4.0, "infer_ms": 15.26, "total_ms": 24.9}
    done = job("succeeded", result={"predictions": predictions}, timings=timings, batch={"id": "b", "size": 8})
    assert rendered(["coffee.jpg"], [done]) == [
        ["coffee.jpg", "0.957 espresso", "3.1", "4.0", "15.3", "24.9", "8"],
        ["", "0.013 cup", "", "", "", "", ""],
    ]


def test_table_shows_why_a_job_failed() -> None:
    """A job that has no result has a reason in its place."""
    failed = job("failed", error={"code": "image_corrupt", "message": "the file is truncated", "retryable": False})
    assert rendered(["broken.png"], [failed]) == [["broken.png", "failed: the file is truncated", "", "", "", "", ""]]
