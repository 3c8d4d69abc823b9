"""A job of the ledger, as clients see it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from api.schemas import Model
from tidegate.catalogue import ModelEntry, ModelState
from tidegate.documents import Job, job_json
from tidegate.jobs import JobRecord, State

CREATED_MS = 1_764_440_000_123
URL = "/v1/jobs/j"
RUN = {"batch_id": "b", "batch_size": 8, "model_version": "1", "preprocess_ms": 4.0, "infer_ms": 15.2}
PREDICTION = {"class_id": 967, "class_name": "espresso", "logit": 9.87, "probability": 0.95, "score": None}


def shown(**fields: Any) -> dict[str, Any]:
    """The JSON of a job whose record has these fields."""
    record = JobRecord(**{"id": "j", "model": "m", "state": State.QUEUED, "created_ms": CREATED_MS, **fields})
    job = Job.from_record(record, url=URL).model_dump(mode="json")
    assert orjson.loads(job_json(record, url=URL)) == job, "the two ways to the same JSON differ"
    assert list(orjson.loads(job_json(record, url=URL))) == list(Job.model_fields)
    return job


def test_a_queued_job_has_a_place_and_no_result() -> None:
    """All members are there from the beginning, null where nothing has happened."""
    assert shown(position=3) == {
        "id": "j",
        "status": "queued",
        "model": "m",
        "model_version": None,
        "created_at": "2025-11-29T18:13:20.123000Z",
        "started_at": None,
        "finished_at": None,
        "expires_at": None,
        "attempts": 0,
        "queue_position": 3,
        "estimated_start_at": None,
        "cached": False,
        "result": None,
        "error": None,
        "metadata": {},
        "timings": {"queued_ms": None, "preprocess_ms": None, "infer_ms": None, "total_ms": None},
        "batch": None,
        "urls": {"get": URL, "cancel": URL},
    }


def test_a_job_that_succeeded_tells_all_of_its_run() -> None:
    """Result, version, timings and batch, each where the contract has it."""
    job = shown(
        state=State.SUCCEEDED,
        started_ms=CREATED_MS + 3,
        finished_ms=CREATED_MS + 25,
        deadline_ms=CREATED_MS + 60_000,
        attempts=1,
        options={"metadata": {"order": "4711"}, "top_k": 1},
        result=[PREDICTION],
        run=RUN,
    )
    assert job["status"] == "succeeded"
    assert job["model_version"] == "1"
    assert job["result"] == {"predictions": [PREDICTION], "regions": None}
    assert job["metadata"] == {"order": "4711"}
    assert job["timings"] == {"queued_ms": 3.0, "preprocess_ms": 4.0, "infer_ms": 15.2, "total_ms": 25.0}
    assert job["batch"] == {"id": "b", "size": 8}
    assert job["expires_at"] == "2025-11-29T18:14:20.123000Z"
    assert job["error"] is None


def test_a_job_that_failed_tells_why() -> None:
    """Code, sentence and whether it may go better are those of the ledger."""
    error = {"code": "image_corrupt", "message": "It is truncated.", "retryable": False}
    job = shown(state=State.FAILED, error=error, finished_ms=CREATED_MS)
    assert job["error"] == error
    assert job["result"] is None
    assert job["timings"]["total_ms"] == 0.0


def test_a_version_that_was_asked_for_is_told_before_it_answers() -> None:
    """And the one that answered wins."""
    assert shown(version="7")["model_version"] == "7"
    assert shown(version="7", run=RUN)["model_version"] == "1"


def test_an_empty_result_is_a_result() -> None:
    """A job that succeeded never looks as if it had not."""
    assert shown(state=State.SUCCEEDED, result=[])["result"] == {"predictions": [], "regions": None}


def test_regions_are_told_in_their_order() -> None:
    """A job with regions has the predictions of each beside its box, and none of the whole image."""
    boxes = [[0, 0, 8, 8], [4, 4, 8, 8]]
    result = [{"box": box, "predictions": [{**PREDICTION, "class_id": index}]} for index, box in enumerate(boxes)]
    job = shown(state=State.SUCCEEDED, options={"regions": boxes}, result=result)
    assert job["result"] == {"predictions": [], "regions": result}


def test_a_raw_score_is_told() -> None:
    """A model that does not say what its scores are still has them shown."""
    job = shown(state=State.SUCCEEDED, result=[{"class_id": 3, "class_name": None, "score": 1.5}])
    (answer,) = job["result"]["predictions"]
    assert answer == {"class_id": 3, "class_name": None, "logit": None, "probability": None, "score": 1.5}


@pytest.mark.parametrize("missing", ["class_name", "logit", "probability"])
def test_a_model_may_lack_labels_or_logits(missing: str) -> None:
    """What a model does not give is null, not an error."""
    prediction = {name: value for name, value in PREDICTION.items() if name != missing}
    (answer,) = shown(state=State.SUCCEEDED, result=[prediction])["result"]["predictions"]
    assert answer == {**PREDICTION, missing: None}


def test_moments_are_utc() -> None:
    """A moment says its zone, whatever that of the machine is."""
    job = Job.from_record(JobRecord("j", "m", State.QUEUED, CREATED_MS), url=URL)
    assert job.created_at == datetime(2025, 11, 29, 18, 13, 20, 123_000, tzinfo=UTC)


def test_a_model_is_told_as_the_workers_found_it() -> None:
    """Every fact of the catalogue is in the answer, under the same name, but for what workers alone need."""
    entry = ModelEntry(name="m", state=ModelState.BROKEN, reason="It has two inputs.", versions=("1", "2"))
    assert Model.from_entry(entry).model_dump(mode="json") == entry.model_dump(mode="json", exclude={"fingerprint"})
