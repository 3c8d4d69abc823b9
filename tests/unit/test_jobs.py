"""Jobs: the table of states, ids, and the record."""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import orjson
import pytest

from tidegate.jobs import TRANSITIONS, Event, JobRecord, NewJob, Priority, State, is_job_id, new_job_id

RECORD = {"state": b"queued", "model": b"cats", "priority": b"normal", "created_ms": b"1750000000000", "bytes": b"3"}


def test_terminal_states_are_those_that_nothing_follows() -> None:
    """No event leads out of an end, and every other state has a way out."""
    sources = {state for state, _ in TRANSITIONS}

    assert {state for state in State if state.terminal} == set(State) - sources


def test_every_state_can_be_reached() -> None:
    """From the queue each state can come about, so none is there for show."""
    reached = {State.QUEUED}
    while more := {follows for (state, _), follows in TRANSITIONS.items() if state in reached} - reached:
        reached |= more

    assert reached == set(State)


@pytest.mark.parametrize("event", Event)
def test_event_leads_to_one_state_wherever_it_counts(event: Event) -> None:
    """An event means one thing: it leads to the same state from each state in which it counts."""
    assert len({follows for (_, happened), follows in TRANSITIONS.items() if happened is event}) == 1


@pytest.mark.parametrize("state", [State.QUEUED, State.RUNNING])
@pytest.mark.parametrize("event", [Event.CANCEL, Event.EXPIRE])
def test_open_job_can_always_be_ended_from_outside(state: State, event: Event) -> None:
    """A client's wish and a passed deadline end a job whether it waits or runs."""
    assert TRANSITIONS[state, event].terminal


def test_job_id_is_a_uuid_of_version_7_that_tells_its_time() -> None:
    """The layout is that of RFC 9562, section 5.7: the first 48 bits are the milliseconds of its making."""
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(new_job_id())
    after = time.time_ns() // 1_000_000

    assert (made.version, made.variant) == (7, uuid.RFC_4122)
    assert before <= made.int >> 80 <= after


def test_job_ids_are_unique_and_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also within a millisecond, from several threads, and when the clock is set back: who came first stands first."""
    ids = [new_job_id() for _ in range(10_000)]
    with ThreadPoolExecutor(4) as threads:
        others = list(threads.map(lambda _: new_job_id(), range(1_000)))
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000)
    last = [new_job_id() for _ in range(100)]

    assert len({*ids, *others, *last}) == 11_100
    assert ids == sorted(ids)
    assert last == sorted(last)
    assert max(ids) < min(others)
    assert max(others) < min(last)
    assert all(is_job_id(job_id) and uuid.UUID(job_id).version == 7 for job_id in last)


def test_job_id_is_one() -> None:
    """What we make is what we take."""
    assert is_job_id(new_job_id())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "*",
        "../etc/passwd",
        "0" * 36,
        "0197AC7E-0000-7000-8000-000000000000",
        "{0197ac7e-0000-7000-8000-000000000000}",
        "urn:uuid:0197ac7e-0000-7000-8000-000000000000",
        "0197ac7e000070008000000000000000",
        "0197ac7e-0000-7000-8000-000000000000\n",
        "0197ac7e-0000-7000-8000-00000000000\u0660",
    ],
)
def test_text_that_is_no_id_of_ours_is_none(text: str) -> None:
    """Only the one canonical spelling may become part of a key."""
    assert not is_job_id(text)


def test_options_leave_defaults_out() -> None:
    """A job of nothing but defaults costs no bytes for them."""
    assert NewJob("id", "cats", b"image").options_json() == b""
    assert orjson.loads(NewJob("id", "cats", b"image", top_k=3).options_json()) == {"top_k": 3}
    assert orjson.loads(NewJob("id", "cats", b"image", metadata={"a": "é"}).options_json()) == {"metadata": {"a": "é"}}


def test_record_of_a_fresh_job_has_nothing_that_has_not_happened() -> None:
    """What the hash does not hold is None, zero or empty."""
    assert JobRecord.from_hash("id", RECORD) == JobRecord("id", "cats", State.QUEUED, 1_750_000_000_000)


def test_record_reads_every_field() -> None:
    """What the hash holds comes back in its type."""
    fields = RECORD | {
        "state": b"failed",
        "version": b"2",
        "options": b'{"top_k":3}',
        "started_ms": b"1750000000001",
        "finished_ms": b"1750000000002",
        "deadline_ms": b"1750000000003",
        "attempts": b"2",
        "error": b'{"code":"image_corrupt","message":"No.","retryable":false}',
        "run": b'{"batch_id":"b"}',
    }

    assert JobRecord.from_hash("id", fields) == JobRecord(
        id="id",
        model="cats",
        state=State.FAILED,
        created_ms=1_750_000_000_000,
        version="2",
        options={"top_k": 3},
        started_ms=1_750_000_000_001,
        finished_ms=1_750_000_000_002,
        deadline_ms=1_750_000_000_003,
        attempts=2,
        error={"code": "image_corrupt", "message": "No.", "retryable": False},
        run={"batch_id": "b"},
    )


def test_empty_result_is_a_result() -> None:
    """A model that names no class has answered."""
    assert JobRecord.from_hash("id", RECORD | {"state": b"succeeded", "result": b"[]"}).result == []


def test_priorities_are_told_from_first_to_last() -> None:
    """The order of the words is the order in which their queues are served; positions count on it."""
    assert list(Priority) == [Priority.HIGH, Priority.NORMAL, Priority.LOW]
