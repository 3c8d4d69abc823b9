"""Base64 in all its honest spellings, and in none other."""

from __future__ import annotations

import base64
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.base64_text import decode_base64
from tidegate.errors import ImageTooLarge, InvalidBase64

#: Has both characters that the alphabets write differently, and needs padding.
IMAGE = bytes(range(256)) * 2 + b"\xfb\xff"
PLAIN = base64.b64encode(IMAGE).decode()
URL_SAFE = base64.urlsafe_b64encode(IMAGE).decode()
LINES = base64.encodebytes(IMAGE).decode()
LIMIT = 1 << 20


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PLAIN, id="plain"),
        pytest.param(PLAIN.rstrip("="), id="unpadded"),
        pytest.param(URL_SAFE, id="url-safe"),
        pytest.param(URL_SAFE.rstrip("="), id="url-safe, unpadded"),
        pytest.param(LINES, id="lines with LF"),
        pytest.param(LINES.replace("\n", "\r\n"), id="lines with CRLF"),
        pytest.param("data:image/png;base64," + PLAIN, id="data URI"),
        pytest.param("data:image/svg+xml;base64," + PLAIN, id="data URI of another type"),
        pytest.param("data:image/png;charset=utf-8;base64," + PLAIN, id="data URI with charset"),
        pytest.param("DATA:IMAGE/PNG;BASE64," + PLAIN, id="data URI in capitals"),
        pytest.param("data:;base64," + PLAIN, id="data URI without a type"),
        pytest.param("data:application/octet-stream;base64," + URL_SAFE, id="data URI, url-safe"),
    ],
)
def test_every_honest_spelling_is_the_same_image(text: str) -> None:
    """However a client writes it, the bytes are those it meant."""
    assert decode_base64(text, max_bytes=LIMIT) == IMAGE


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("\r\n", id="only an end of line"),
        pytest.param("====", id="only padding"),
        pytest.param(PLAIN.replace("+", " "), id="a lost plus"),
        pytest.param(" " + PLAIN, id="a blank in front"),
        pytest.param("\t".join((PLAIN[:40], PLAIN[40:])), id="a tab"),
        pytest.param(str(PLAIN.encode()), id="the repr of bytes"),
        pytest.param("hello, world!", id="a sentence"),
        pytest.param("ümläut", id="no ASCII"),
        pytest.param("\ud800AAA", id="a lone surrogate"),
        pytest.param("QUJD=QUJD", id="padding inside"),
        pytest.param("QUJDRA=", id="half the padding"),
        pytest.param("QUJD====", id="too much padding"),
        pytest.param("QUJDQ", id="a length that cannot be"),
        pytest.param("data:image/png," + PLAIN, id="data URI that is not in base64"),
        pytest.param("data:text/html;base64," + PLAIN, id="data URI of a page"),
        pytest.param("data:image/png;base64", id="data URI without data"),
        pytest.param("data:image/png;base64,", id="data URI with empty data"),
        pytest.param("data:image/png;" + "a=b;" * 100 + "base64," + PLAIN, id="data URI with an endless head"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """What a lenient decoder would make another image of is an error, which does not show what was sent."""
    with pytest.raises(InvalidBase64) as refusal:
        decode_base64(text, max_bytes=LIMIT)
    assert PLAIN[:16] not in str(refusal.value)


@given(st.binary(min_size=1, max_size=400))
def test_what_python_encodes_is_decoded(image: bytes) -> None:
    """Both alphabets, padded or not, for any bytes and any length."""
    for encoded in (base64.b64encode(image).decode(), base64.urlsafe_b64encode(image).decode()):
        assert decode_base64(encoded, max_bytes=400) == image
        assert decode_base64(encoded.rstrip("="), max_bytes=400) == image


@given(st.text(max_size=60))
def test_no_text_crashes(text: str) -> None:
    """There are bytes, or there is a refusal."""
    with suppress(InvalidBase64):
        assert decode_base64(text, max_bytes=LIMIT)


def test_an_image_of_more_than_one_chunk_is_whole() -> None:
    """Decoding in pieces leaves no seam."""
    image = bytes(range(251)) * 10_000
    assert decode_base64(base64.b64encode(image).decode(), max_bytes=len(image)) == image


@pytest.mark.parametrize("size", range(1, 7))
def test_the_limit_is_on_the_decoded_length(size: int) -> None:
    """An image of exactly the limit passes, one byte more does not, whatever the padding is."""
    encoded = base64.b64encode(b"x" * size).decode()
    assert len(decode_base64(encoded, max_bytes=size)) == size
    with pytest.raises(ImageTooLarge):
        decode_base64(encoded, max_bytes=size - 1)
