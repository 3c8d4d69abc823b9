"""Both clients against the real API, a real Redis and a real worker."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.integration.both_clients import CLIENTS, AnyClient
from tests.integration.site import Site, running_site
from tests.integration.stub_triton import CLASSES, MODEL, answer, hold, image_of
from tidegate.client import (
    Client,
    Conflict,
    ImageError,
    JobCanceled,
    JobExpired,
    NotFound,
    RequestError,
    UrlError,
    WaitTimeout,
)
from tidegate.jobs import new_job_id


class LosesFirstAnswer(httpx.HTTPTransport):
    """A network on which the first answer does not get through.

    Attributes:
        answers: the bodies of all answers that were given, also of the one that was lost.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[bytes] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Pass the request on, and break the first answer off."""
        response = super().handle_request(request)
        self.answers.append(response.read())
        if len(self.answers) == 1:
            raise httpx.ReadError("connection reset", request=request)
        return response


@pytest.fixture(scope="module")
def site(redis_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The Tidegate of all tests here."""
    with running_site(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest, site: Site) -> Iterator[AnyClient]:
    """One client, and then the other."""
    with CLIENTS[request.param](site.url) as made:
        yield made


@pytest.fixture
def stopped(site: Site) -> Iterator[threading.Event]:
    """The model stands still until the event is set."""
    go = threading.Event()
    site.rig.stub.behaviour = hold(go, 60.0)
    yield go
    go.set()
    site.rig.stub.behaviour = answer


def test_classify_gives_what_the_model_said(client: AnyClient, tmp_path: Path) -> None:
    """The bytes of an image or its file go in, and the classes come out, as many as asked for."""
    photo = tmp_path / "photo.png"
    photo.write_bytes(image_of(7))
    assert client.classify(image_of(5)).top.class_id == 5
    result = client.classify(photo, model=MODEL, version="1", top_k=3, priority="high", metadata={"ä": "ö"})
    assert [prediction.class_id for prediction in result.predictions][:1] == [7]
    assert len(result.predictions) == 3
    assert result.top.class_name == "label7"
    assert result.top.probability == pytest.approx(0.995, abs=0.01)


def test_regions_are_classified_one_by_one(client: AnyClient) -> None:
    """Each box has its own answer, in the order asked for."""
    boxes = [(0, 0, 4, 4), (2, 2, 8, 8)]
    result = client.classify(image_of(6), regions=boxes, top_k=1)
    assert result.regions is not None
    assert [(region.box, region.predictions[0].class_id) for region in result.regions] == [(box, 6) for box in boxes]
    with pytest.raises(LookupError):
        _ = result.top


def test_job_is_handed_in_found_again_and_waited_for(client: AnyClient) -> None:
    """Its id is enough to come back to it, and all that the API tells of it is there."""
    job = client.submit(image_of(3), metadata={"order": "4711"})
    assert client.job(job.id).wait(timeout=30).top.class_id == 3
    assert job.wait(timeout=30).top.class_id == 3
    assert (job.state.status, job.state.model, job.state.model_version) == ("succeeded", MODEL, "1")
    assert job.state.metadata == {"order": "4711"}
    assert job.state.timings.total_ms is not None
    assert job.state.batch is not None
    assert job.refresh() == job.state


def test_job_is_canceled(client: AnyClient, stopped: threading.Event) -> None:
    """Whoever waits for it learns that; a second cancellation changes nothing."""
    job = client.submit(image_of(3))
    assert job.cancel().status == "canceled"
    assert job.cancel().status == "canceled"
    with pytest.raises(JobCanceled):
        job.wait(timeout=30)


def test_job_that_is_over_cannot_be_canceled(client: AnyClient) -> None:
    """The caller learns that it came too late."""
    job = client.submit(image_of(3))
    job.wait(timeout=30)
    with pytest.raises(Conflict) as caught:
        job.cancel()
    assert (caught.value.code, caught.value.status) == ("job_finished", 409)


def test_wait_is_over_when_its_time_is(client: AnyClient, stopped: threading.Event) -> None:
    """The job goes on, and another wait has its result."""
    with pytest.raises(WaitTimeout) as caught:
        client.classify(image_of(3), timeout=1.2)
    assert caught.value.job is not None
    stopped.set()
    assert client.job(caught.value.job.id).wait(timeout=30).top.class_id == 3


def test_job_that_expires_is_told_as_such(client: AnyClient, stopped: threading.Event) -> None:
    """A deadline is no failure of the model."""
    with pytest.raises(JobExpired):
        client.classify(image_of(3), expires_in=1, timeout=30)


@pytest.mark.parametrize(
    ("image", "error", "code"),
    [
        (b"no image", ImageError, "unsupported_format"),
        (image_of(1)[:-30], ImageError, "image_corrupt"),
        ("http://127.0.0.1/photo.jpg", UrlError, "url_not_allowed"),
    ],
)
def test_bad_image_is_the_same_error_wherever_it_is_found(
    client: AnyClient, image: bytes | str, error: type[Exception], code: str
) -> None:
    """At the door or by the worker: the class and the code say what is wrong with it."""
    with pytest.raises(error) as caught:
        client.classify(image, timeout=30)
    assert getattr(caught.value, "code", None) == code


def test_bad_option_is_told_by_its_field(client: AnyClient) -> None:
    """The API's own words about each field are there."""
    with pytest.raises(RequestError) as caught:
        client.submit(image_of(1), top_k=CLASSES + 1)
    assert caught.value.code == "invalid_field"
    assert [field.pointer for field in caught.value.fields] == ["#/top_k"]


def test_unknown_job_and_model_are_not_found(client: AnyClient) -> None:
    """Told apart by their codes."""
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: client.job(new_job_id()), "job_not_found"),
        (lambda: client.job("../models"), "not_found"),
        (lambda: client.submit(image_of(1), model="nowhere"), "model_not_found"),
    ]
    for call, code in calls:
        with pytest.raises(NotFound) as caught:
            call()
        assert caught.value.code == code


def test_models_are_listed(client: AnyClient) -> None:
    """With what a caller must know of them."""
    (model,) = client.models()
    assert (model.name, model.state, model.classes, model.versions) == (MODEL, "ready", CLASSES, ("1",))


def test_map_classifies_a_folder(client: AnyClient, tmp_path: Path) -> None:
    """Every file has its own answer, and a broken one stops no other."""
    for number in range(60):
        (tmp_path / f"{number}.png").write_bytes(image_of(number % CLASSES))
    (tmp_path / "broken.png").write_bytes(image_of(1)[:-30])
    outcomes = {Path(str(outcome.image)).name: outcome for outcome in client.map(tmp_path.iterdir(), concurrency=20)}
    broken = outcomes.pop("broken.png")
    assert isinstance(broken.error, ImageError)
    assert broken.job is not None
    assert {name: outcome.result.top.class_id for name, outcome in outcomes.items()} == {
        f"{number}.png": number % CLASSES for number in range(60)
    }


def test_submit_all_hands_in_without_waiting(client: AnyClient, stopped: threading.Event) -> None:
    """Every image is a job before any has ended, and a look at the list finds them all, the newest first."""
    images = [image_of(number % CLASSES) for number in range(250)]
    ids = [outcome.job.id for outcome in client.submit_all(images, priority="low") if outcome.job]
    listed = [job.state for job in itertools.islice(client.jobs(), 250)]
    assert len(ids) == 250
    assert {job.id for job in listed} == set(ids)
    assert [job.created_at for job in listed] == sorted((job.created_at for job in listed), reverse=True)
    stopped.set()
    assert client.job(ids[0]).wait(timeout=60)


def test_jobs_are_listed_by_state_and_model(client: AnyClient, stopped: threading.Event) -> None:
    """A list of what waits is what it takes to cancel it all."""
    for number in range(3):
        client.submit(image_of(number))
    waiting = [job for job in client.jobs(status="queued", model=MODEL) if job.cancel().status == "canceled"]
    assert waiting
    assert [job.id for job in client.jobs(status="queued", model=MODEL)] == []
    assert {job.id for job in waiting} <= {job.id for job in client.jobs(status="canceled")}
    with pytest.raises(RequestError) as caught:
        next(client.jobs(status="asleep"))
    assert caught.value.code == "invalid_field"


def test_map_goes_on_while_the_queue_is_full(redis_program: Path, tmp_path: Path) -> None:
    """An API that has no room for most of a form is asked again, and every image has its answer, once."""
    with running_site(tmp_path, max_queued_jobs=5) as small, Client(small.url) as client:
        outcomes = list(client.map([image_of(number % CLASSES) for number in range(200)], concurrency=50))
    assert [outcome.error for outcome in outcomes] == [None] * 200
    assert len({outcome.job.id for outcome in outcomes if outcome.job}) == 200


def test_submission_whose_answer_was_lost_makes_one_job(site: Site) -> None:
    """The API takes it, the connection breaks before the answer is there, and the repetition brings the same job."""
    if not site.knows_repetitions:
        pytest.skip("this API does not read Idempotency-Key")
    transport = LosesFirstAnswer()
    with Client(site.url, transport=transport) as client:
        job = client.submit(image_of(3))
    assert [job.id] * 2 == [json.loads(answer)["id"] for answer in transport.answers]


def test_form_whose_answer_was_lost_makes_its_jobs_once(site: Site) -> None:
    """The repetition of a form brings the jobs that it has made already."""
    transport = LosesFirstAnswer()
    with Client(site.url, transport=transport) as client:
        outcomes = list(client.submit_all([image_of(number % CLASSES) for number in range(20)], concurrency=20))
    told = [item["job"]["id"] for answer in transport.answers for item in json.loads(answer)["jobs"]]
    assert len(told) > 20
    assert set(told) == {outcome.job.id for outcome in outcomes if outcome.job}
    assert len(set(told)) == 20


def test_map_survives_a_death_of_the_api(client: AnyClient, site: Site) -> None:
    """While it is killed and started again requests are repeated, and every image has its answer."""
    given = 0
    for outcome in client.map([image_of(number % CLASSES) for number in range(300)], concurrency=10):
        given += 1
        assert outcome.error is None
        if given == 100:
            site.api.kill()
            site.api.start()
    assert given == 300
