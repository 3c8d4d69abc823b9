"""A ``multipart/form-data`` body, taken apart in memory: images are handed on as bytes, and nothing touches a disk.

Starlette lets the same parser write each file into a temporary one, to be read back; of a small image that is most of
what accepting it costs. Here the parts stay in memory, which ``api/body_limit.py`` bounds. Source: RFC 7578.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import Request

from tidegate.errors import InvalidField, InvalidRequest

#: Parts of a form beside the images, and bytes in one of them: metadata is the largest.
MAX_FORM_FIELDS = 16
MAX_FORM_FIELD_BYTES = 16 * 1024
#: Bytes of a header of a part: a disposition with two names in it.
MAX_HEADER_BYTES = 8 * 1024
#: Source: RFC 2046, section 5.1.1.
MAX_BOUNDARY_BYTES = 70


@dataclass
class Form:
    """What stood in a form.

    Attributes:
        files: the contents of the files named ``image``, in their order.
        bare_images: how many other parts had that name.
        texts: names and values of the parts with other names.
    """

    files: list[bytes] = field(default_factory=list)
    bare_images: int = 0
    texts: list[tuple[str, str]] = field(default_factory=list)

    def images(self) -> list[bytes]:
        """The images, at least one.

        Raises:
            InvalidRequest: there is none, or beside it something that is no file.
            InvalidField: there is one, and it is no file.
        """
        if self.bare_images == 1 and not self.files:
            problem = ("#/image", "The part must be a file: its Content-Disposition needs a filename.")
            raise InvalidField("The image is not a file.", problems=(problem,))
        if self.bare_images:
            raise InvalidRequest("A part 'image' is no file.")
        if not self.files:
            raise InvalidRequest("The form has no part 'image'.")
        return self.files


@dataclass
class _Part:
    """What the parser has told of a part so far.

    Attributes:
        header: the name and value of the header that is being read.
        disposition: the value of its Content-Disposition.
    """

    header: tuple[bytearray, bytearray] = field(default_factory=lambda: (bytearray(), bytearray()))
    disposition: bytes = b""
    content: list[bytes] = field(default_factory=list)


class _Reader:
    """Makes a form of what the parser tells, and keeps it within its limits."""

    def __init__(self, boundary: bytes, charset: str, *, max_images: int) -> None:
        self.form = Form()
        self.ended = False
        self._charset = charset
        self._max_images = max_images
        self._part = _Part()
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin_part,
                "on_header_field": lambda data, start, end: self._part.header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._part.header[1].extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_part_data": lambda data, start, end: self._part.content.append(data[start:end]),
                "on_part_end": self._end_part,
                "on_end": self._end,
            },
            max_header_size=MAX_HEADER_BYTES,
        )

    def write(self, chunk: bytes) -> None:
        """Read some more; what follows the last part is nobody's business."""
        if not self.ended:
            self._parser.write(chunk)

    def _begin_part(self) -> None:
        self._part = _Part()

    def _end_header(self) -> None:
        name, value = self._part.header
        if name.lower() == b"content-disposition":
            self._part.disposition = bytes(value)
        self._part.header = (bytearray(), bytearray())

    def _end_part(self) -> None:
        options = parse_options_header(self._part.disposition)[1]
        if b"name" not in options:
            raise InvalidRequest("The form is broken: a part has no name.")
        self._add(_text(options[b"name"], self._charset), b"".join(self._part.content), is_file=b"filename" in options)

    def _end(self) -> None:
        self.ended = True

    def _add(self, name: str, content: bytes, *, is_file: bool) -> None:
        form = self.form
        if name != "image":
            form.texts.append((name, self._value(content, is_file=is_file)))
        elif is_file:
            form.files.append(content)
        else:
            form.bare_images += 1
        if len(form.texts) + form.bare_images > MAX_FORM_FIELDS:
            raise InvalidRequest(f"The form has more than {MAX_FORM_FIELDS} parts beside its images.")
        if len(form.files) > self._max_images:
            most = f"more than {self._max_images} parts" if self._max_images > 1 else "more than one part"
            raise InvalidRequest(f"The form has {most} 'image'.")

    def _value(self, content: bytes, *, is_file: bool) -> str:
        if is_file:
            raise InvalidRequest("A part other than 'image' is a file.")
        if len(content) > MAX_FORM_FIELD_BYTES:
            raise InvalidRequest(f"A part beside the image is larger than {MAX_FORM_FIELD_BYTES} bytes.")
        return _text(content, self._charset)


async def read_form(request: Request, *, max_images: int) -> Form:
    """Read a form with images in it.

    Raises:
        InvalidRequest: it cannot be read; or has too many parts, too large ones, or a file that is none of the images.
    """
    params = parse_options_header(request.headers["content-type"])[1]
    boundary = params.get(b"boundary", b"")
    if not 0 < len(boundary) <= MAX_BOUNDARY_BYTES:
        raise InvalidRequest(f"The form's Content-Type needs a boundary of 1 to {MAX_BOUNDARY_BYTES} characters.")
    reader = _Reader(boundary, params.get(b"charset", b"utf-8").decode("latin-1"), max_images=max_images)
    try:
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                reader.write(chunk)
    except MultipartParseError as error:
        raise InvalidRequest(
            "The form is broken: its boundaries or the headers of its parts cannot be read."
        ) from error
    if not reader.ended:
        raise InvalidRequest("The form is broken: it does not end.")
    return reader.form


def _text(encoded: bytes, charset: str) -> str:
    """By the codec that the request declares, which may be any that Python has, or none."""
    try:
        return encoded.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return encoded.decode("latin-1")
    except UnicodeError as error:
        raise InvalidRequest("The form cannot be decoded.") from error
