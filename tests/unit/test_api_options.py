"""The options of a submission, out of JSON and out of text."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.options import MAX_METADATA_BYTES, JobOptions, options_from_json, options_from_text
from tidegate.errors import InvalidField
from tidegate.jobs import Priority

SECRET = "sw0rdfish"


def pointers(refusal: pytest.ExceptionInfo[InvalidField]) -> list[str]:
    """The fields that a refusal names."""
    return [pointer for pointer, _ in refusal.value.problems]


def test_everything_may_be_left_out() -> None:
    """A submission of nothing but an image has options."""
    assert options_from_json({}) == options_from_text([]) == JobOptions()


def test_text_and_json_mean_the_same() -> None:
    """The three forms of a submission know the same options."""
    asked = {
        "model": "m",
        "version": "2",
        "top_k": 3,
        "priority": "high",
        "expires_in": 60,
        "metadata": {"order": "4711"},
        "regions": [[0, 0, 8, 8], [4, 4, 8, 8]],
    }
    pairs = [(name, value if isinstance(value, str) else json.dumps(value)) for name, value in asked.items()]
    assert options_from_text(pairs) == options_from_json(asked) == JobOptions.model_validate(asked)


def test_priorities_are_those_of_jobs() -> None:
    """The words that the API takes are all the words there are."""
    assert set(get_args(JobOptions.model_fields["priority"].annotation)) == set(Priority)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model", ""),
        ("model", "m" * 256),
        ("model", 7),
        ("model", "\ud800"),
        ("version", "0"),
        ("version", "latest"),
        ("version", "1" * 19),
        ("version", 1),
        ("top_k", 0),
        ("top_k", -1),
        ("top_k", True),
        ("top_k", 1.0),
        ("top_k", "5"),
        ("top_k", float("nan")),
        ("priority", 11),
        ("priority", "urgent"),
        ("priority", None),
        ("expires_in", 0),
        ("expires_in", 86_401),
        ("expires_in", 1e400),
        ("expires_in", 10**40),
        ("regions", []),
        ("regions", [[0, 0, 8]]),
        ("regions", [[0, 0, 8, 8, 8]]),
        ("regions", [[0, 0, 8, 8.5]]),
        ("regions", [[0, 0, 8, "8"]]),
        ("regions", [[-1, 0, 8, 8]]),
        ("regions", [[0, 0, 8, 10**40]]),
        ("regions", [[0, 0, 8, 8]] * 65),
        ("regions", [0, 0, 8, 8]),
        ("regions", "[[0, 0, 8, 8]]"),
        ("metadata", []),
        ("metadata", None),
        ("metadata", {"n": 1}),
        ("metadata", {"n": None}),
        ("metadata", {"n": {}}),
        ("metadata", {"n": "\udfff"}),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_field(name: str, value: Any) -> None:
    """A client learns which field it is, also for types that Python would take for a number."""
    with pytest.raises(InvalidField) as refusal:
        options_from_json({name: value})
    assert pointers(refusal) == [f"#/{name}"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("top_k", "five"),
        ("top_k", "0"),
        ("top_k", ""),
        ("top_k", "1e2"),
        ("top_k", "9" * 5000),
        ("expires_in", "86401"),
        ("regions", "0,0,8,8"),
        ("regions", "[[0, 0, 8]]"),
        ("metadata", "{"),
        ("metadata", "[]"),
        ("metadata", '{"n": NaN}'),
        ("metadata", '{"n": 1}'),
        ("metadata", "[" * 5000),
    ],
)
def test_a_wrong_text_is_refused_by_the_name_of_its_field(name: str, text: str) -> None:
    """The same in a query or a form."""
    with pytest.raises(InvalidField) as refusal:
        options_from_text([(name, text)])
    assert pointers(refusal) == [f"#/{name}"]


def test_all_wrong_fields_are_named_at_once() -> None:
    """A client need not find its mistakes one by one."""
    with pytest.raises(InvalidField) as refusal:
        options_from_json({"top_k": 0, "priority": "urgent", "expires_in": 0})
    assert pointers(refusal) == ["#/top_k", "#/priority", "#/expires_in"]


def test_a_field_given_twice_is_refused() -> None:
    """There is no guessing which of two values was meant."""
    with pytest.raises(InvalidField) as refusal:
        options_from_text([("top_k", "1"), ("top_k", "2")])
    assert pointers(refusal) == ["#/top_k"]


@pytest.mark.parametrize("name", ["image_url", "webhook", "topk", SECRET])
def test_an_unknown_field_is_refused_and_the_known_ones_are_told(name: str) -> None:
    """A misspelt option does not become a default; and its name, the client's own text, is not repeated."""
    with pytest.raises(InvalidField) as refusal:
        options_from_json({name: SECRET})
    ((pointer, detail),) = refusal.value.problems
    assert pointer == "#"
    assert "top_k" in detail
    assert SECRET not in detail


@pytest.mark.parametrize(
    "fields",
    [
        {"model": SECRET * 100},
        {"version": SECRET},
        {"top_k": SECRET},
        {"priority": SECRET},
        {"metadata": SECRET},
        {"metadata": {SECRET: 1}},
        {"metadata": {"n": [SECRET]}},
    ],
)
def test_a_refusal_does_not_repeat_what_was_sent(fields: dict[str, Any]) -> None:
    """Neither a value nor the key of a metadata field comes back in an error."""
    with pytest.raises(InvalidField) as refusal:
        options_from_json(fields)
    assert SECRET not in f"{refusal.value} {refusal.value.problems}"


def test_metadata_is_bounded_as_it_is_stored() -> None:
    """Exactly the limit passes, a byte more does not; names count, and so do the bytes of UTF-8."""
    frame = len('{"ä":""}'.encode())
    fits = {"ä": "x" * (MAX_METADATA_BYTES - frame)}
    assert options_from_json({"metadata": fits}).metadata == fits
    with pytest.raises(InvalidField) as refusal:
        options_from_json({"metadata": {"ä": fits["ä"] + "x"}})
    assert pointers(refusal) == ["#/metadata"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(sorted(JobOptions.model_fields)) | st.text()


@given(st.dictionaries(NAMES, JSON, max_size=4))
def test_no_json_crashes(fields: dict[str, Any]) -> None:
    """There are options, or a refusal."""
    with suppress(InvalidField):
        options_from_json(fields)


@given(st.lists(st.tuples(NAMES, st.text()), max_size=4))
def test_no_text_crashes(pairs: list[tuple[str, str]]) -> None:
    """The same for queries and forms."""
    with suppress(InvalidField):
        options_from_text(pairs)
