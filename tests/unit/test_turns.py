"""Turns between the priorities of a queue, as a table of pops."""

from __future__ import annotations

import orjson
import pytest

from worker.turns import ROUND, PriorityTurns, issued_ms

STEPS = (0, 3, 6)
QUEUE = "tidegate.m"


def ticket(issued: object) -> bytes:
    """A message that tells when it was issued."""
    return orjson.dumps({"headers": {"issued_ms": issued}})


def pops_until_a_turn(turns: PriorityTurns, queue: str = QUEUE) -> int:
    """How many pops it takes until the next one is for the oldest."""
    return next(count for count in range(1, 2 * ROUND) if turns.popped(queue))


def test_turn_comes_once_in_a_round_in_each_queue() -> None:
    """Queues have their rounds, each its own; between turns the most urgent is looked at first."""
    turns = PriorityTurns(STEPS)
    assert not any(turns.popped("tidegate-1.m") for _ in range(ROUND - 1))
    assert [pops_until_a_turn(turns) for _ in range(3)] == [ROUND] * 3
    assert turns.popped("tidegate-1.m")
    assert tuple(turns.order(QUEUE)) == STEPS


@pytest.mark.parametrize(
    ("high", "normal", "low", "order"),
    [
        (30, 20, 10, [6, 0, 3]),
        (30, 10, 20, [3, 0, 6]),
        (10, 20, 30, [0, 3, 6]),
        (10, 10, 10, [0, 3, 6]),
        (30, None, 40, [0, 3, 6]),
        (None, None, None, [0, 3, 6]),
    ],
)
def test_turn_is_for_the_oldest_ticket(high: int | None, normal: int | None, low: int | None, order: list[int]) -> None:
    """Whoever came first is first, and all others in their usual order; a later ticket gains nothing from being low."""
    turns = PriorityTurns(STEPS)
    heads = dict(zip(STEPS, (high, normal, low), strict=True))
    turns.choose(QUEUE, {step: None if issued is None else ticket(issued) for step, issued in heads.items()})
    assert list(turns.order(QUEUE)) == order
    assert tuple(turns.order("tidegate.other")) == STEPS


def test_turn_is_over_with_one_pop() -> None:
    """The pop after it is for the most urgent again."""
    turns = PriorityTurns(STEPS)
    turns.choose(QUEUE, {6: ticket(1)})
    turns.popped(QUEUE)
    assert tuple(turns.order(QUEUE)) == STEPS


@pytest.mark.parametrize("message", [b"", b"[]", b"{}", b'{"headers": 1}', ticket("soon")])
def test_message_that_does_not_tell_its_time_has_none(message: bytes) -> None:
    """A message that is no ticket of ours gets no turn, and harms nobody."""
    assert issued_ms(message) is None
    turns = PriorityTurns(STEPS)
    turns.choose(QUEUE, {0: ticket(5), 6: message})
    assert tuple(turns.order(QUEUE)) == STEPS
