"""Content codings, undone without more memory than a little."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator

import httpx
import pytest

from tidegate.errors import UrlNotAnImage, UrlUnreachable
from worker.coding import CHUNK_BYTES, decoded

BODY = os.urandom(100_000) + bytes(3_000_000)


class Chunks(httpx.SyncByteStream):
    """A body that comes in pieces of a certain size."""

    def __init__(self, body: bytes, size: int) -> None:
        self._body = body
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        return (self._body[at : at + self._size] for at in range(0, len(self._body), self._size))


def answer(body: bytes, coding: str | None, *, size: int = 10_000) -> httpx.Response:
    """An answer with that body, coded so."""
    headers = {"content-encoding": coding} if coding is not None else {}
    return httpx.Response(200, headers=headers, stream=Chunks(body, size))


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        (None, BODY),
        ("identity", BODY),
        ("gzip", gzip.compress(BODY)),
        ("GZIP", gzip.compress(BODY)),
        ("x-gzip", gzip.compress(BODY)),
        ("deflate", zlib.compress(BODY)),
    ],
)
@pytest.mark.parametrize("size", [1_000, 10_000_000])
def test_body_is_what_it_was_before_it_was_coded(coding: str | None, body: bytes, size: int) -> None:
    """In whichever pieces it comes."""
    assert b"".join(decoded(answer(body, coding, size=size))) == BODY


def test_coded_body_comes_out_a_little_at_a_time() -> None:
    """However much stands in one piece of it."""
    chunks = list(decoded(answer(gzip.compress(bytes(50_000_000)), "gzip", size=10_000_000)))
    assert max(map(len, chunks)) <= CHUNK_BYTES


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress", "nonsense"])
def test_coding_that_was_not_asked_for_is_refused(coding: str) -> None:
    """We ask for none; what gzip-happy servers do all the same is understood, and nothing else."""
    with pytest.raises(UrlNotAnImage):
        list(decoded(answer(BODY, coding)))


@pytest.mark.parametrize(
    "body",
    [b"not gzip at all", gzip.compress(BODY)[:-9], gzip.compress(BODY)[:50], b""],
    ids=["text", "cut", "short", "empty"],
)
def test_broken_coding_is_a_broken_answer(body: bytes) -> None:
    """Cut short or never right: half an image must not pass for a whole one."""
    with pytest.raises(UrlUnreachable):
        list(decoded(answer(body, "gzip")))
