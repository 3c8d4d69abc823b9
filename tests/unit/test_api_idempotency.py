"""The Idempotency-Key header, and what makes two requests the same."""

from __future__ import annotations

import pytest

from api.idempotency import MAX_KEY_CHARACTERS, idempotency_of, parse_idempotency_key
from api.options import JobOptions
from api.uploads import Upload
from tidegate.errors import InvalidRequest


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ('"8e03978e-40d5"', "8e03978e-40d5"),
        ("8e03978e-40d5", "8e03978e-40d5"),
        (' "with blank" ', "with blank"),
        (r'"a \"quoted\" \\ key"', r'a "quoted" \ key'),
        ('"key";parameter=1', "key"),
        ("x" * MAX_KEY_CHARACTERS, "x" * MAX_KEY_CHARACTERS),
    ],
)
def test_a_key_is_read_quoted_or_bare(value: str, key: str) -> None:
    """As the draft has it, and as many clients send it."""
    assert parse_idempotency_key([value]) == key


@pytest.mark.parametrize(
    "values",
    [
        [""],
        ['""'],
        ['"'],
        ['"open'],
        ["with blank"],
        ["a,b"],
        ["ü"],
        ["x" * 256],
        [f'"{"x" * 256}"'],
        ["\x7f"],
        ["a", "a"],
    ],
)
def test_what_is_no_key_is_refused(values: list[str]) -> None:
    """A key that is misread would make a repetition of what is none."""
    with pytest.raises(InvalidRequest):
        parse_idempotency_key(values)


def test_without_the_header_there_is_no_key() -> None:
    """Every submission is a new one."""
    assert parse_idempotency_key([]) is None


def test_the_same_request_has_the_same_fingerprint() -> None:
    """However its body was written; and every difference in what is asked for makes another."""
    upload = Upload(b"image", JobOptions(top_k=3, metadata={"a": "1", "b": "2"}))
    same = idempotency_of("key", Upload(b"image", JobOptions(metadata={"b": "2", "a": "1"}, top_k=3)))
    assert idempotency_of("key", upload) == same
    others = [
        Upload(b"another", upload.options),
        Upload(b"image", JobOptions(top_k=4, metadata={"a": "1", "b": "2"})),
        Upload(b"image", JobOptions(top_k=3)),
        Upload(b"image", upload.options, "https://example.com/"),
    ]
    assert len({idempotency_of("key", other).fingerprint for other in [upload, *others]}) == 5
    assert idempotency_of("other", upload).key_digest != same.key_digest
