"""The tree of errors is what its drawing says."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest

import tidegate.errors
from tidegate.errors import InvalidField, TidegateError

_BRANCH = re.compile(r"^ {4}(?P<indent>[│ ]*)[├└]── (?P<name>\w+) +(?P<rest>.*)$")


def tree(cls: type[TidegateError], depth: int = 0) -> Iterator[tuple[int, type[TidegateError]]]:
    """Every class below that the module holds, with its depth, in the order in which they are written."""
    for child in cls.__subclasses__():
        if child.__module__ == tidegate.errors.__name__:
            yield depth, child
            yield from tree(child, depth + 1)


ALL: list[type[TidegateError]] = [TidegateError, *(cls for _, cls in tree(TidegateError))]
LEAVES = [cls for cls in ALL if not list(tree(cls))]


def drawn() -> list[tuple[int, str, str]]:
    """Depth, name and code of each class, as the drawing at the top of the module has them; groups have no code."""
    branches = map(_BRANCH.match, (tidegate.errors.__doc__ or "").splitlines())
    rows = []
    for branch in branches:
        if branch:
            rest = branch["rest"]
            rows.append((len(branch["indent"]) // 4, branch["name"], rest if re.fullmatch(r"[a-z0-9_]+", rest) else ""))
    return rows


def test_drawing_at_the_top_is_the_tree() -> None:
    """Whoever reads the drawing knows every class, where it belongs and what its code is."""
    real = [(depth, cls.__name__, cls.code if cls in LEAVES else "") for depth, cls in tree(TidegateError)]

    assert drawn() == real


def test_every_leaf_has_a_code_of_its_own() -> None:
    """Clients tell errors apart by their code."""
    codes = [cls.code for cls in LEAVES]

    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("cls", ALL)
def test_code_is_snake_case(cls: type[TidegateError]) -> None:
    """Codes are stable words that fit a metric's label."""
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)*", cls.code)


@pytest.mark.parametrize("cls", ALL)
def test_class_says_in_a_sentence_what_went_wrong(cls: type[TidegateError]) -> None:
    """Each has a docstring of its own, and an instance reads as the sentence that it was made with."""
    assert (cls.__doc__ or "").split("\n")[0].endswith((".", ":"))
    assert str(cls("The queue is full.")) == "The queue is full."


@pytest.mark.parametrize(
    ("cls", "retryable"),
    [
        (tidegate.errors.RequestError, False),
        (tidegate.errors.ThrottledError, True),
        (tidegate.errors.UnavailableError, True),
        (tidegate.errors.InferenceError, True),
    ],
)
def test_group_says_whether_a_retry_may_help(cls: type[TidegateError], retryable: bool) -> None:  # noqa: FBT001
    """Faults of the caller never go away by themselves and outages do; answers that will be the same are told."""
    final = {tidegate.errors.ModelRejectedInput, tidegate.errors.ModelOutputInvalid}

    assert cls.retryable is retryable
    assert all(child.retryable is (retryable and child not in final) for _, child in tree(cls))


@pytest.mark.parametrize("cls", ALL)
def test_error_crosses_processes_whole(cls: type[TidegateError]) -> None:
    """A pool child hands errors to its parent pickled; nothing of them may be lost on the way."""
    error = cls("The queue is full.")
    error.retry_after_seconds = 3.5

    copy = pickle.loads(pickle.dumps(error))

    assert (type(copy), str(copy), copy.retry_after_seconds) == (cls, "The queue is full.", 3.5)


def test_field_error_keeps_its_problems_across_processes() -> None:
    """Which field, and what is wrong with it."""
    error = InvalidField("One field is wrong.", problems=(("/top_k", "must be at least 1"),))

    assert pickle.loads(pickle.dumps(error)).problems == error.problems
