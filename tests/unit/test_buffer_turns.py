"""Models take turns at a worker's children, whoever has more to do."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from worker.buffer import TicketBuffer


@dataclass(frozen=True)
class Entry:
    """A ticket."""

    job_id: str


_numbers = itertools.count()


def filled(counts: dict[str, int], *, limit: int = 4) -> TicketBuffer[Entry]:
    """A buffer that holds so many tickets of each model."""
    buffer: TicketBuffer[Entry] = TicketBuffer()
    buffer.set_limits(dict.fromkeys(counts, limit))
    for model, count in counts.items():
        add(buffer, model, count)
    return buffer


def add(buffer: TicketBuffer[Entry], model: str, count: int) -> None:
    """Some more tickets, all different."""
    for number in itertools.islice(_numbers, count):
        assert buffer.add(model, Entry(f"{model}-{number}"), now_seconds=0.0)


def next_models(buffer: TicketBuffer[Entry], count: int) -> list[str]:
    """Whose batches leave next."""
    batches = [buffer.next_batch(now_seconds=0.0) for _ in range(count)]
    return [batch.model for batch in batches if batch is not None]


def test_models_take_turns() -> None:
    """A long line and two short ones alternate for as long as all have something."""
    assert next_models(filled({"a": 40, "b": 8, "c": 8}), 7) == ["a", "b", "c", "a", "b", "c", "a"]


def test_newcomer_goes_before_a_model_that_was_just_served() -> None:
    """A ticket of another model that comes while the long line runs is next, not next but one."""
    buffer = filled({"a": 40})
    assert next_models(buffer, 3) == ["a", "a", "a"]
    add(buffer, "b", 1)
    assert next_models(buffer, 2) == ["b", "a"]


def test_trickle_does_not_push_a_long_line_aside() -> None:
    """A model that always has one more ticket gets every other batch and no more."""
    buffer = filled({"a": 400})
    served = []
    for _ in range(40):
        add(buffer, "b", 1)
        served += next_models(buffer, 1)
    assert Counter(served) == {"a": 20, "b": 20}


@given(st.lists(st.sampled_from("abcd"), max_size=60))
def test_no_model_waits_while_another_is_served_twice(arrivals: list[str]) -> None:
    """From the moment a model has a ticket, every other model is served at most once before it."""
    buffer: TicketBuffer[Entry] = TicketBuffer()
    buffer.set_limits(dict.fromkeys("abcd", 2))
    add(buffer, "a", 100)
    held = Counter(a=100)
    since: dict[str, Counter[str]] = {"a": Counter()}
    for model in arrivals:
        add(buffer, model, 1)
        held[model] += 1
        since.setdefault(model, Counter())
        batch = buffer.next_batch(now_seconds=0.0)
        assert batch is not None
        held[batch.model] -= len(batch.entries)
        del since[batch.model]
        for others in since.values():
            others[batch.model] += 1
            assert others[batch.model] <= 1
        if held[batch.model]:
            since[batch.model] = Counter()


def test_a_full_batch_is_told_of_while_it_may_run() -> None:
    """So that it may go to a child at once: nothing that comes later could make it larger."""
    buffer = filled({"a": 3}, limit=4)
    assert not buffer.has_full_batch()
    add(buffer, "a", 1)
    assert buffer.has_full_batch()
    buffer.pause("a")
    add(buffer, "a", 4)
    assert not buffer.has_full_batch()
