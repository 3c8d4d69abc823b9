"""Any classifier: one probe in every form that a repository may hold, from the real Triton, with one answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.integration.classifying import classifier
from tests.integration.probe_models import add_model, channel_means
from tests.integration.quadrant_probe import CLASSES, LABELS, Variant, expected_logits, quarters
from tests.integration.redis_server import running_redis
from tests.integration.triton_server import TritonServer, running_triton
from tests.integration.workers import Client, quick_settings, running_worker
from tidegate.catalogue import ModelState, read_catalogue
from tidegate.declarations import ModelDeclaration
from tidegate.errors import ModelContractError
from worker.contract import Scores
from worker.scores import softmax

INPUTS: dict[str, list[Any]] = {
    "layout": ["NCHW", "NHWC"],
    "datatype": ["UINT8", "FP16", "FP32"],
    "batching": ["max_batch_size", "leading -1", "leading 1", "reshape", "none"],
}
OUTPUTS: dict[str, list[Any]] = {
    "size": [(32, 32, False), (24, 40, False), (32, 32, True)],
    "trailing_ones": [False, True],
    "softmax": [False, True],
    "half_output": [False, True],
    "decoy_output": [False, True],
    "label_file": [False, True],
}
CHOICES = INPUTS | OUTPUTS


def _pairs(choice: dict[str, Any]) -> set[tuple[Any, ...]]:
    return {(a, choice[a], b, choice[b]) for a, b in itertools.combinations(choice, 2)}


def _table() -> list[dict[str, Any]]:
    """Every input, each with the output that brings the most pairs of choices which no row had before."""
    outputs = [dict(zip(OUTPUTS, values, strict=True)) for values in itertools.product(*OUTPUTS.values())]
    seen: set[tuple[Any, ...]] = set()
    rows = []
    for values in itertools.product(*INPUTS.values()):
        given = dict(zip(INPUTS, values, strict=True))
        row = max((given | output for output in outputs), key=lambda row: len(_pairs(row) - seen))
        # Among equals another one next time.
        outputs = outputs[7:] + outputs[:7]
        seen |= _pairs(row)
        rows.append(row)
    return rows


def _variant(row: dict[str, Any]) -> Variant:
    fields = dict(row)
    height, width, open_size = fields.pop("size")
    return Variant(height=height, width=width, open_size=open_size, **fields)


# Loading dozens of models takes Triton most of a minute.
pytestmark = pytest.mark.timeout(300)

TABLE = _table()
VARIANTS = {f"form{index}": _variant(row) for index, row in enumerate(TABLE)} | {
    "decodes": Variant(datatype="STRING"),
    "decodes_alone": Variant(datatype="STRING", batching="none", label_file=False),
    "decodes_any": Variant(datatype="STRING", batching="leading -1"),
}

#: Every quarter and colour differs from every other, and no two are near.
IMAGES = [
    quarters([(250, 15, 118), (180, 60, 205), (95, 225, 35), (140, 160, 75)]),
    quarters([(20, 100, 180), (240, 120, 40), (60, 0, 210), (160, 140, 80)]),
    quarters([(80, 40, 255), (0, 160, 120), (200, 220, 20), (60, 240, 140)], size=(211, 77)),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    """A Triton that serves every form at once."""
    repository = tmp_path_factory.mktemp("forms")
    for name, variant in VARIANTS.items():
        variant.add_to(repository, name)
    _add_broken_models(repository)
    with running_triton(repository, ready_within_seconds=200) as running:
        yield running


#: Models that cannot be served, each in its own way: how they are told, and with which words.
BROKEN = {
    "labels_short": (ModelState.BROKEN, "model labels_short has 12 classes, but 11 labels in labels.txt"),
    "misspelt": (ModelState.BROKEN, "tidegate.scalling is not a parameter of Tidegate; did you mean tidegate.scaling?"),
    "undecided": (ModelState.BROKEN, "model undecided has 2 outputs (scores, decoy): tidegate.output must choose one"),
    "integers": (ModelState.BROKEN, "model integers takes TYPE_INT64 as input image"),
    "no_file": (ModelState.UNAVAILABLE, "model.onnx does not exist"),
    "wrong_size": (ModelState.UNAVAILABLE, "index: 2 Got: 64 Expected: 32"),
}


def _add_broken_models(repository: Path) -> None:
    folder = Variant().add_to(repository, "labels_short")
    (folder / "labels.txt").write_text("\n".join(LABELS[:-1]) + "\n")
    Variant(parameters={"scalling": "unit"}).add_to(repository, "misspelt")
    folder = Variant(decoy_output=True).add_to(repository, "undecided")
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace("tidegate.output", "somebody.output"))
    add_model(repository, "integers", channel_means(TensorProto.INT64), _INTEGERS)
    folder = Variant().add_to(repository, "no_file")
    (folder / "1" / "model.onnx").unlink()
    # The size that its parameter chooses is another than the one in its graph.
    folder = Variant(open_size=True, height=64, width=64).add_to(repository, "wrong_size")
    onnx.save(Variant().model(), folder / "1" / "model.onnx")


_INTEGERS = """
    backend: "onnxruntime"
    max_batch_size: 8
    input [ { name: "image" data_type: TYPE_INT64 dims: [ 3, 4, 4 ] } ]
    output [ { name: "means" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""


def test_table_has_every_input_and_every_pair_of_choices() -> None:
    """No form of an input is left out, and no two choices have never met."""
    assert {tuple(row[name] for name in INPUTS) for row in TABLE} == set(itertools.product(*INPUTS.values()))
    met = set().union(*(_pairs(row) for row in TABLE))
    for a, b in itertools.combinations(CHOICES, 2):
        assert {(a, x, b, y) for x in CHOICES[a] for y in CHOICES[b]} <= met


@pytest.mark.parametrize("name", VARIANTS)
def test_every_form_gives_the_same_answer(server: TritonServer, name: str) -> None:
    """Classes, names, scores and probabilities are those of the pixels, for each image its own, in any order."""
    variant = VARIANTS[name]
    with classifier(server.grpc_url, name) as model:
        answers = model.classify(IMAGES)
    assert model.contract.scores is (Scores.PROBABILITIES if variant.softmax else Scores.LOGITS)
    for image, predictions in zip(IMAGES, answers, strict=True):
        _check(predictions, image, variant)


def test_worker_answers_for_every_form_and_names_the_broken_ones(
    server: TritonServer, redis_program: Path, tmp_path: Path
) -> None:
    """One worker serves all of them at once through its queue; models that cannot be served stop nobody."""
    with running_redis(tmp_path) as redis:
        settings = quick_settings(redis.url, server.grpc_url)
        with closing(Client(settings)) as client, running_worker(settings, tmp_path):
            for name in VARIANTS:
                client.wait_for_model(name)
            ids = {name: client.submit(name, IMAGES, top_k=CLASSES) for name in VARIANTS}
            for name, variant in VARIANTS.items():
                for image, job in zip(IMAGES, client.wait_for_end(ids[name]), strict=True):
                    assert job.result is not None, (name, job.error)
                    _check(job.result, image, variant)
            catalogue = read_catalogue(client.redis, settings)
    for name, (state, words) in BROKEN.items():
        assert catalogue[name].state is state, name
        assert words in (catalogue[name].reason or ""), catalogue[name].reason
    log = (tmp_path / "w1.log").read_text()
    assert all(f"model={name}" in log for name in BROKEN)
    nameless = {name for name, form in VARIANTS.items() if form.half_output and form.label_file}
    assert nameless == {name for name, entry in catalogue.items() if "have no names" in (entry.notice or "")}


def test_declared_labels_stand_in_where_triton_tells_none(server: TritonServer) -> None:
    """A label file beside a half precision output is told by nobody; names out of the settings are."""
    name = next(name for name, form in VARIANTS.items() if form.half_output and form.label_file)
    declared = {name: ModelDeclaration(labels=LABELS)}
    with classifier(server.grpc_url, name, models=declared) as model:
        (answer,) = model.classify(IMAGES[:1])
    assert {found["class_name"] for found in answer} == set(LABELS)


def _check(predictions: Sequence[Mapping[str, Any]], image: bytes, variant: Variant) -> None:
    logits = expected_logits(image, height=variant.height, width=variant.width)
    probabilities = softmax(logits)
    order = [int(index) for index in np.argsort(-logits, kind="stable")]
    named = variant.label_file and not variant.half_output
    # Half precision keeps three digits.
    near = 0.02 if variant.half_output or variant.datatype == "FP16" else 1e-4
    assert [found["class_id"] for found in predictions] == order
    assert [found["class_name"] for found in predictions] == [LABELS[index] if named else None for index in order]
    for found in predictions:
        assert found["probability"] == pytest.approx(probabilities[found["class_id"]], abs=near)
        if not variant.softmax:
            assert found["logit"] == pytest.approx(logits[found["class_id"]], abs=near)
    assert len(predictions) == CLASSES


def test_labels_that_are_too_few_break_the_model(server: TritonServer) -> None:
    """A label file with a line too few is told by the model's name and both numbers, before any job meets it."""
    with (
        pytest.raises(ModelContractError, match="labels_short has 12 classes, but 11 labels"),
        classifier(server.grpc_url, "labels_short"),
    ):
        pass
