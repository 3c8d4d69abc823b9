"""The Prefer header, as RFC 7240 has it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.prefer import MAX_WAIT_SECONDS, Preferences, parse_prefer


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Preferences()),
        ([""], Preferences()),
        (["respond-async"], Preferences(respond_async=True)),
        (["wait=10"], Preferences(wait_seconds=10)),
        (["respond-async, wait=10"], Preferences(True, 10)),
        (["respond-async", "wait=10"], Preferences(True, 10)),
        (["Respond-Async,WAIT=10"], Preferences(True, 10)),
        (["wait = 10 ; strictly"], Preferences(wait_seconds=10)),
        (['wait="10"'], Preferences(wait_seconds=10)),
        (["wait=0"], Preferences(wait_seconds=0)),
        (["wait=61"], Preferences(wait_seconds=MAX_WAIT_SECONDS)),
        (["wait=3, wait=5"], Preferences(wait_seconds=3)),
        (["wait=soon, wait=5"], Preferences()),
        (["wait=-1"], Preferences()),
        (["wait=1.5"], Preferences()),
        (["wait=²"], Preferences()),
        (["wait=" + "9" * 5000], Preferences()),
        (['handling=lenient; note="a, wait=5", return=minimal'], Preferences()),
        (['note="no end, wait=5'], Preferences()),
    ],
)
def test_prefer_is_read_as_the_rfc_has_it(values: list[str], expected: Preferences) -> None:
    """First wins, unknown and broken ones are ignored, and a longer wish is cut."""
    assert parse_prefer(values) == expected


@pytest.mark.parametrize(
    ("preferences", "applied"),
    [
        (Preferences(), ""),
        (Preferences(respond_async=True), "respond-async"),
        (Preferences(wait_seconds=0), "wait=0"),
        (Preferences(True, 10), "respond-async, wait=10"),
    ],
)
def test_preference_applied_names_what_is_honoured(preferences: Preferences, applied: str) -> None:
    """What was asked for comes back, and nothing else."""
    assert preferences.applied == applied


@given(st.lists(st.text(st.characters(max_codepoint=255)), max_size=4))
def test_prefer_never_refuses(values: list[str]) -> None:
    """A preference is a wish: whatever the header says, a request goes on."""
    wait = parse_prefer(values).wait_seconds
    assert wait is None or 0 <= wait <= MAX_WAIT_SECONDS
