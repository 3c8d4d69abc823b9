"""What a pool child makes of jobs, models and limits, call by call."""

from __future__ import annotations

import itertools
from typing import Any

import grpc
import numpy as np
import pytest

from tests.integration.one_child import running_child
from tests.integration.stub_triton import CLASSES, MODEL, SIDE, Call, image_of, slow, stripes
from tidegate.catalogue import ModelState
from tidegate.declarations import ModelDeclaration, TensorDeclaration
from tidegate.jobs import JobRecord, State
from tidegate.ledger import Ledger
from tidegate.settings import Settings
from worker.batch import BatchCall
from worker.contract import DTYPES, Datatype

MEBIBYTE = 1024**2


def classes_of(jobs: list[JobRecord]) -> list[int]:
    """The best class of each job, all of which must have succeeded."""
    assert [(job.state, job.error) for job in jobs] == [(State.SUCCEEDED, None)] * len(jobs)
    return [job.result[0]["class_id"] for job in jobs if job.result]


@pytest.mark.parametrize("datatype", ["UINT8", "FP16", "BF16", "FP32"])
def test_each_datatype_reaches_the_server_as_itself(settings: Settings, datatype: Datatype) -> None:
    """The request names the model's type, and its bytes are the pixels in that type; the answers agree."""
    with running_child(settings, stub={"datatype": datatype}) as one:
        assert classes_of(one.classify([image_of(class_id) for class_id in range(8)])) == [*range(8)]
        (call,) = one.stub.calls
    assert call.datatype == datatype
    pixels = np.frombuffer(call.data, DTYPES[datatype]).reshape(8, SIDE, SIDE, 3).astype(np.float64)
    assert [set(np.unique(image)) for image in pixels] == [{0, 16 * class_id + 8} for class_id in range(8)]


def test_white_image_is_finite_in_half_precision(settings: Settings) -> None:
    """255 without any scaling is far below what FP16 holds."""
    white = image_of(15, others=255)
    with running_child(settings, stub={"datatype": "FP16"}) as one:
        assert classes_of(one.classify([white])) == [15]
        (call,) = one.stub.calls
    assert np.isfinite(np.frombuffer(call.data, np.float16)).all()


def test_no_call_passes_the_limit_in_bytes(settings: Settings) -> None:
    """32 images of 12.6 MB each, at a server that takes 64 MiB a message: every call fits, and none was refused."""
    large = {"side": 1024, "datatype": "FP32", "max_batch": 32, "message_bytes": 64 * MEBIBYTE}
    with running_child(settings, stub=large, triton_shm="off") as one:
        entry = one.discover()
        jobs = one.classify([image_of(class_id % CLASSES) for class_id in range(32)])
        assert classes_of(jobs) == [class_id % CLASSES for class_id in range(32)]
        assert one.stub.sizes == [5] * 6 + [2]
    assert entry.batch_limit == 5


def test_server_that_takes_less_than_we_think_gets_it_in_halves(settings: Settings) -> None:
    """A message that the server finds too large is no overload that passes: the batch is halved until it fits."""
    small = {"side": 512, "max_batch": 16, "message_bytes": 2 * MEBIBYTE}
    with running_child(settings, stub=small, triton_shm="off") as one:
        jobs = one.classify([image_of(class_id) for class_id in range(8)])
        assert classes_of(jobs) == [*range(8)]
        assert one.stub.sizes == [2] * 4
    assert {job.attempts for job in jobs} == {1}


def test_image_beyond_the_limit_in_bytes_breaks_its_model(settings: Settings) -> None:
    """A model whose single image passes the limit is told broken by name, setting and numbers."""
    with running_child(settings, stub={"side": 1024}, max_call_bytes=MEBIBYTE) as one:
        entry = one.discover()
    assert entry.state is ModelState.BROKEN
    assert entry.reason == (
        "model stub takes 3145728 bytes for one image, and TIDEGATE_MAX_CALL_BYTES allows 1048576 for a whole call"
    )


DECLARED = ModelDeclaration(
    batch_limit=4,
    labels=tuple(f"class {index}" for index in range(CLASSES)),
    parameters={"scores": "logits"},
)
PLAIN = {"extensions": False}


def test_server_without_index_and_configuration_is_served_by_declaration(settings: Settings) -> None:
    """What the settings say stands in: names, limits, labels and what the scores are; a name it lacks is told."""
    with running_child(settings, stub=PLAIN, models={MODEL: DECLARED, "lost": ModelDeclaration()}) as one:
        catalogue = one.child.discover().catalogue
        jobs = one.classify([image_of(class_id) for class_id in range(8)])
        assert classes_of(jobs) == [*range(8)]
        # The first warmed the model up; a server with classification is asked for its labels by that call.
        assert one.stub.sizes == [1, 4, 4]
    assert jobs[3].result is not None
    assert (jobs[3].result[0]["class_name"], jobs[3].result[0]["logit"]) == ("class 3", 8.0)
    assert (catalogue[MODEL].state, catalogue[MODEL].batch_limit) == (ModelState.READY, 4)
    assert catalogue["lost"].state is ModelState.UNAVAILABLE
    assert "is not found" in (catalogue["lost"].reason or "")


def test_declared_model_that_the_index_lacks_is_told(settings: Settings) -> None:
    """A name that is misspelt in the settings is no silence."""
    with running_child(settings, models={"stubb": DECLARED}) as one:
        catalogue = one.child.discover().catalogue
    assert catalogue[MODEL].state is ModelState.READY
    assert catalogue["stubb"].state is ModelState.UNAVAILABLE
    assert catalogue["stubb"].reason == "TIDEGATE_MODELS names it, and the server has none such."


@pytest.mark.parametrize(
    ("declared", "reason"),
    [
        (DECLARED.model_copy(update={"labels": ("one", "two")}), "has 16 classes, but 2 labels"),
        (ModelDeclaration(labels_file="/nowhere/labels.txt"), "has a labels_file in TIDEGATE_MODELS that cannot be"),
        (
            ModelDeclaration(input=TensorDeclaration(name="image", datatype="UINT8", shape=(-1, 8, 8, 3))),
            "the server tells the input itself",
        ),
        (ModelDeclaration(format="NCHW"), "says FORMAT_NCHW"),
        (ModelDeclaration(parameters={"scaling": "torchvision"}), "scaling makes fractions"),
        (ModelDeclaration(parameters={"scalling": "unit"}), "did you mean tidegate.scaling"),
    ],
)
def test_declaration_that_does_not_fit_breaks_the_model(
    settings: Settings, declared: ModelDeclaration, reason: str
) -> None:
    """A declaration that contradicts the server or itself is told by the model's name and in one sentence."""
    with running_child(settings, stub=PLAIN, models={MODEL: declared}) as one:
        entry = one.discover()
    assert entry.state is ModelState.BROKEN
    assert reason in (entry.reason or "")
    assert (entry.reason or "").startswith("model stub ")


def test_declaration_that_contradicts_the_configuration_breaks_the_model(settings: Settings) -> None:
    """Where Triton says one thing and a person another, nobody guesses."""
    contradiction = ModelDeclaration(parameters={"scores": "probabilities"})
    with running_child(settings, models={MODEL: contradiction}) as one:
        entry = one.discover()
    assert entry.state is ModelState.BROKEN
    assert "contradicts TIDEGATE_MODELS: tidegate.scores is 'logits' on the server" in (entry.reason or "")


def test_regions_are_answered_in_their_order(settings: Settings) -> None:
    """One job, many boxes: each has its own answer in its place, and they share a call with other jobs."""
    boxes = tuple((SIDE * index, 0, SIDE * (index + 1), SIDE) for index in (2, 0, 3, 1, 1))
    with running_child(settings) as one:
        ids = one.client.submit(MODEL, [stripes([3, 9, 14, 6])], regions=boxes)
        ids += one.client.submit(MODEL, [image_of(1)] * 3)
        job, *others = one.run(ids)
        assert one.stub.sizes == [8]
    assert job.result is not None
    assert [tuple(region["box"]) for region in job.result] == list(boxes)
    assert [region["predictions"][0]["class_id"] for region in job.result] == [14, 3, 6, 9, 9]
    assert classes_of(others) == [1, 1, 1]
    assert {other.run["batch_size"] for other in (job, *others)} == {8}


def test_more_regions_than_a_call_takes_go_in_several(settings: Settings) -> None:
    """64 regions at a model that takes 8 are eight calls and one answer; the batch's other job has its own."""
    boxes = tuple((SIDE * (index % CLASSES), 0, SIDE * (index % CLASSES + 1), SIDE) for index in range(64))
    with running_child(settings) as one:
        ids = one.client.submit(MODEL, [stripes([*range(CLASSES)])], regions=boxes)
        job, other = one.run(ids + one.client.submit(MODEL, [image_of(7)]))
        assert one.stub.sizes == [8] * 8 + [1]
    assert job.result is not None
    assert [region["predictions"][0]["class_id"] for region in job.result] == [index % CLASSES for index in range(64)]
    assert classes_of([other]) == [7]


def test_region_beyond_the_image_fails_its_job_alone(settings: Settings) -> None:
    """A box that reaches beyond the upright image ends its job with a code and a sentence, in one attempt."""
    with running_child(settings) as one:
        ids = one.client.submit(MODEL, [image_of(5)], regions=((0, 0, 4, 4), (0, 0, 9, 8)))
        bad, good = one.run(ids + one.client.submit(MODEL, [image_of(6)]))
    assert (bad.state, bad.attempts) == (State.FAILED, 1)
    assert bad.error == {
        "code": "invalid_field",
        "message": "Region 1 cannot be cut out: the box reaches beyond the upright image, which is 8x8.",
        "retryable": False,
    }
    assert classes_of([good]) == [6]


def test_one_region_that_the_model_refuses_fails_its_job_alone(settings: Settings) -> None:
    """A call is halved down to the row that is refused; the job of that row has no result, its neighbours theirs."""

    def refuse_nine(call: Call, context: Any, scores: Any) -> Any:
        if 9 in call.classes:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unexpected shape")
        return scores

    boxes = tuple((SIDE * index, 0, SIDE * (index + 1), SIDE) for index in range(4))
    with running_child(settings) as one:
        one.stub.behaviour = refuse_nine
        ids = one.client.submit(MODEL, [stripes([3, 9, 14, 6]), stripes([1, 2, 3, 4])], regions=boxes)
        bad, good = one.run(ids)
    assert (bad.state, (bad.error or {})["code"]) == (State.FAILED, "model_rejected_input")
    assert good.result is not None
    assert [region["predictions"][0]["class_id"] for region in good.result] == [1, 2, 3, 4]


def test_job_of_several_calls_has_one_version(settings: Settings) -> None:
    """A model that is exchanged between two calls of a job answers it once more, whole, by the version that stays."""
    versions = itertools.chain(["1", "1"], itertools.repeat("2"))
    with running_child(settings) as one:
        one.stub.version_of = lambda call: call.version or next(versions)
        (job,) = one.classify([stripes([*range(CLASSES)])], regions=((0, 0, SIDE, SIDE),) * 32)
        assert [call.version for call in one.stub.calls] == [""] * 4 + ["2"] * 4
    assert job.run["model_version"] == "2"
    assert job.result is not None
    assert len(job.result) == 32


def test_job_whose_image_is_gone_fails_by_name_and_alone(settings: Settings) -> None:
    """A store that lost an image ends that job, and tells that another submit may help."""
    with running_child(settings) as one:
        ids = one.client.submit(MODEL, [image_of(2), image_of(5)], tickets=False)
        one.client.redis.delete(f"{settings.key_prefix}input:{ids[0]}")
        lost, kept = one.run(ids)
    assert lost.error is not None
    assert (lost.state, lost.error["code"], lost.error["retryable"]) == (State.FAILED, "image_lost", True)
    assert kept.state is State.SUCCEEDED


def test_job_that_is_canceled_before_its_image_is_read_stays_so(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the claim of jobs and the reading of their images one may end: the other runs, and it is left alone."""
    with running_child(settings) as one:
        canceled, kept = one.client.submit(MODEL, [image_of(2), image_of(5)], tickets=False)

        def cancel_between(ledger: Ledger, script: Any, arguments: Any, keys: Any) -> list[Any]:
            reply = script(args=arguments)
            assert one.client.ledger.run(one.client.ledger.commands.cancel([canceled])) == ["canceled"]
            return [reply, ledger.client.mget(keys)]

        monkeypatch.setattr(Ledger, "_read_along", cancel_between)
        jobs = one.run([canceled, kept])
    assert [(job.state, job.error) for job in jobs] == [(State.CANCELED, None), (State.SUCCEEDED, None)]


def test_batch_that_takes_too_long_gives_the_rest_back(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs whose turn does not come in time are queued again, without an attempt spent, and with a ticket."""
    monkeypatch.setattr("worker.batch.BEGIN_WITHIN_SECONDS", 0.3)
    boxes = ((0, 0, SIDE, SIDE),) * 8
    with running_child(settings) as one:
        one.stub.behaviour = slow(0.4)
        ids = one.client.submit(MODEL, [image_of(2)] * 3, regions=boxes)
        call = BatchCall("batch", MODEL, tuple(ids), fingerprint="", alone=False)
        report = one.child.run_batch(call)
        first, *rest = [one.client.job(job_id) for job_id in ids]
    assert first.state is State.SUCCEEDED
    assert [(job.state, job.attempts, job.error) for job in rest] == [(State.QUEUED, 0, None)] * 2
    assert sorted(ticket.job_id for ticket in report.tickets) == sorted(ids[1:])
