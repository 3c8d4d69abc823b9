"""A form is taken apart in memory just as the usual parser takes it apart, and refused where that refuses it."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import pytest
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.types import Message

from api.forms import MAX_FORM_FIELD_BYTES, MAX_FORM_FIELDS, MAX_HEADER_BYTES, Form, read_form
from tidegate.errors import InvalidField, InvalidRequest

pytestmark = pytest.mark.anyio

FILE = 'Content-Disposition: form-data; name="image"; filename="a.jpg"\r\nContent-Type: image/jpeg'
TEXT = 'Content-Disposition: form-data; name="top_k"'


def part(head: str, content: bytes) -> bytes:
    """One part, with the boundary before it."""
    return b"--b\r\n" + head.encode() + b"\r\n\r\n" + content + b"\r\n"


def request(body: bytes, *, content_type: str = "multipart/form-data; boundary=b", chunk: int = 65_536) -> Request:
    """A request whose body arrives in chunks."""
    pieces = [body[start : start + chunk] for start in range(0, len(body), chunk)] or [b""]
    messages = iter(
        [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        + [{"type": "http.request", "body": b"", "more_body": False}]
    )

    async def receive() -> Message:
        return next(messages)

    headers = [(b"content-type", content_type.encode("latin-1"))]
    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": headers}
    return Request(scope, receive)


async def usual(asked: Request) -> list[tuple[str, str | bytes]]:
    """What Starlette reads in it."""
    async with asked.form() as form:
        return [
            (name, await value.read() if isinstance(value, UploadFile) else value) for name, value in form.multi_items()
        ]


def items(form: Form) -> list[tuple[str, str | bytes]]:
    """The same of ours: the texts, then the images."""
    return [*form.texts, *(("image", image) for image in form.files)]


FORMS = {
    "an image": part(FILE, b"\xff\xd8x") + b"--b--\r\n",
    "an image and an option": part(TEXT, b"3") + part(FILE, b"x") + b"--b--\r\n",
    "two images": part(FILE, b"x") + part(FILE, b"y") + b"--b--",
    "nothing in it": part(FILE, b"") + b"--b--\r\n",
    "line ends in it": part(FILE, b"\r\n\r\n--\r\n-b\r\n\r\n") + b"--b--\r\n",
    "a line end before it": b"\r\n" + part(FILE, b"x") + b"--b--\r\n",
    "something after it": part(FILE, b"x") + b"--b--\r\nmore",
    "headers in other letters": part(FILE.replace("Content-D", "CONTENT-d"), b"x") + b"--b--\r\n",
    "an escaped name": part(r'Content-Disposition: form-data; name="image"; filename="a\"b.jpg"', b"x") + b"--b--\r\n",
    "no quotes": part("Content-Disposition: form-data; name=image; filename=a", b"x") + b"--b--\r\n",
    "a name of a file without quotes, no ASCII": part(
        "Content-Disposition: form-data; name=image; filename=größe.jpg", b"x"
    )
    + b"--b--\r\n",
    "no name of a file": part('Content-Disposition: form-data; name="image"; filename=""', b"x") + b"--b--\r\n",
    "an umlaut": part('Content-Disposition: form-data; name="größe"', "ä".encode()) + b"--b--\r\n",
    "no UTF-8": part(TEXT, b"\xff") + b"--b--\r\n",
    "300 KB": part(FILE, bytes(range(256)) * 1200) + b"--b--\r\n",
}


@pytest.mark.parametrize("chunk", [1, 7, 65_536])
@pytest.mark.parametrize("body", FORMS.values(), ids=FORMS)
async def test_a_form_is_read_as_usual(body: bytes, chunk: int) -> None:
    """However it is cut when it arrives."""
    form = await read_form(request(body, chunk=max(chunk, len(body) // 500)), max_images=10)
    assert items(form) == await usual(request(body))


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "utf-16-le", "nonsense", "hex"])
async def test_texts_are_decoded_by_the_codec_that_is_declared(charset: str) -> None:
    """As usual; where there is no such codec, each byte is a character."""
    body = part(TEXT, "ä3".encode()) + b"--b--\r\n"
    kind = f"multipart/form-data; boundary=b; charset={charset}"
    assert items(await read_form(request(body, content_type=kind), max_images=1)) == await usual(
        request(body, content_type=kind)
    )


@pytest.mark.parametrize("boundary", ["----=_Part_1", "a:b", "a/b?", "a(b)", '"a b"', '"b"', "'b'"])
@pytest.mark.parametrize("before", ["; ", ";", ";\t", " ; charset=utf-8; "])
async def test_a_boundary_is_read_as_usual(boundary: str, before: str) -> None:
    """With quotes or without, whatever is in it."""
    body = FORMS["two images"].replace(b"--b", b"--" + boundary.strip('"').encode())
    kind = f"multipart/form-data{before}boundary={boundary}"
    form = await read_form(request(body, content_type=kind), max_images=2)
    assert items(form) == await usual(request(body, content_type=kind))


async def test_a_file_whose_name_is_in_another_form_is_a_file() -> None:
    """Some clients write names of other alphabets so, though forms should not."""
    body = part("Content-Disposition: form-data; name=\"image\"; filename*=UTF-8''%C3%A4.jpg", b"x") + b"--b--\r\n"
    assert (await read_form(request(body), max_images=1)).files == [b"x"]


BROKEN = {
    "nothing": b"",
    "no boundary": b"x",
    "no end": part(FILE, b"x"),
    "cut in its headers": b"--b\r\nContent-Dispo",
    "something after a boundary": b"--bx\r\n" + part(FILE, b"x") + b"--b--\r\n",
    "no headers": b"--b\r\n\r\nx\r\n--b--\r\n",
    "no name": part("Content-Disposition: form-data", b"x") + b"--b--\r\n",
    "endless headers": part("X: " + "x" * MAX_HEADER_BYTES + "\r\n" + FILE, b"x") + b"--b--\r\n",
    "a header of two lines": part(FILE + "\r\n x", b"x") + b"--b--\r\n",
    "a large option": part(TEXT, b"x" * (MAX_FORM_FIELD_BYTES + 1)) + b"--b--\r\n",
    "many options": part(TEXT, b"1") * (MAX_FORM_FIELDS + 1) + b"--b--\r\n",
    "an image too many": part(FILE, b"x") * 3 + b"--b--\r\n",
    "another file": part(FILE.replace("image", "photo", 1), b"x") + b"--b--\r\n",
}


@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN)
async def test_a_broken_form_is_refused(body: bytes) -> None:
    """Whatever is wrong with it, it is the client's fault."""
    with pytest.raises(InvalidRequest):
        await read_form(request(body), max_images=2)


async def test_headers_cost_no_more_than_their_bytes() -> None:
    """A megabyte of short header lines takes no more processor time than one of content, by order of magnitude."""
    lines = part(FILE + "\r\n" + "\r\n".join([" x"] * 1500), b"x") * 150
    content = part(FILE, b"x" * len(lines))

    async def seconds(body: bytes) -> float:
        started = time.thread_time()
        with suppress(InvalidRequest):
            await read_form(request(body + b"--b--\r\n"), max_images=1000)
        return time.thread_time() - started

    assert await seconds(lines) < 20 * await seconds(content)


@pytest.mark.parametrize("boundary", ["", "; boundary=", f"; boundary={'b' * 71}"])
async def test_a_form_needs_a_boundary(boundary: str) -> None:
    """One that is missing, empty or longer than may be is refused."""
    with pytest.raises(InvalidRequest):
        await read_form(request(FORMS["an image"], content_type=f"multipart/form-data{boundary}"), max_images=1)


def test_a_form_must_have_an_image() -> None:
    """None at all is refused."""
    with pytest.raises(InvalidRequest):
        Form(texts=[("top_k", "1")]).images()


async def test_an_image_must_be_a_file() -> None:
    """A text in its place is named as the field that is wrong; beside an image it makes the form unclear."""
    bare = part('Content-Disposition: form-data; name="image"', b"x")
    with pytest.raises(InvalidField):
        (await read_form(request(bare + b"--b--\r\n"), max_images=1)).images()
    with pytest.raises(InvalidRequest):
        (await read_form(request(bare + FORMS["an image"]), max_images=1)).images()
