"""A ``multipart/form-data`` body, taken apart in memory: images are handed on as bytes, and nothing touches a disk.

Starlette writes each file into a temporary one, to be read back, and its parser calls back for every header; of a small
image that is most of what accepting it costs. Here the parts stay in memory, which ``api/body_limit.py`` bounds.
Source: RFC 7578.
"""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, field

from multipart import MultipartError, MultipartSegment, ParserError, PushMultipartParser
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


class _Parser(PushMultipartParser):  # type: ignore[misc]  # multipart is untyped
    """Refuses headers that go on in the next line.

    Nobody sends such any more, and the parser would read a header anew with each line of it, however short that is.
    Source: RFC 9112, section 5.2, for the headers of requests.
    """

    def _on_segment_headerline(self, line: bytes) -> None:
        if line.startswith((b" ", b"\t")):
            raise ParserError("A header goes on in the next line")
        super()._on_segment_headerline(line)


class _Reader:
    """Makes a form of what the parser tells, and keeps it within its limits."""

    def __init__(self, boundary: bytes, charset: str, *, max_images: int) -> None:
        self.form = Form()
        self._charset = charset
        self._max_images = max_images
        self._part: MultipartSegment | None = None
        self._content: list[bytes] = []
        # In this one any byte is a character, so that names can be decoded by the codec that the request declares.
        self._parser = _Parser(boundary, max_header_size=MAX_HEADER_BYTES, header_charset="latin-1")

    def write(self, chunk: bytes) -> None:
        """Read some more; what follows the last part is nobody's business."""
        for event in self._parser.parse(chunk):
            if event is None:
                self._end_part()
            elif isinstance(event, bytes):
                self._content.append(event)
            else:
                self._part, self._content = event, []

    def end(self) -> Form:
        """The form, which has to have ended."""
        try:
            self._parser.close()
        except MultipartError as error:
            raise InvalidRequest("The form is broken: it does not end.") from error
        return self.form

    def _end_part(self) -> None:
        part = self._part
        if part is None or not part.name:
            raise InvalidRequest("The form is broken: a part has no name.")
        name = _text(part.name.encode("latin-1"), self._charset)
        # Of some file names only that there is one can be read, such as one in RFC 8187's form.
        is_file = part.filename is not None or (name == "image" and "filename" in part["Content-Disposition"])
        self._add(name, b"".join(self._content), is_file=is_file)

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
    parameters = _parameters(request.headers["content-type"])
    boundary = parameters.get("boundary", "").encode("latin-1")
    if not 0 < len(boundary) <= MAX_BOUNDARY_BYTES:
        raise InvalidRequest(f"The form's Content-Type needs a boundary of 1 to {MAX_BOUNDARY_BYTES} characters.")
    try:
        reader = _Reader(boundary, parameters.get("charset", "utf-8"), max_images=max_images)
        async with aclosing(request.stream()) as chunks:
            async for chunk in chunks:
                # An empty one would be the end of the form.
                if chunk:
                    reader.write(chunk)
    except MultipartError as error:
        raise InvalidRequest(
            "The form is broken: its boundaries or the headers of its parts cannot be read."
        ) from error
    return reader.end()


def _parameters(content_type: str) -> dict[str, str]:
    """Those of a Content-Type; neither a boundary nor a charset has a semicolon in it, quoted or not."""
    parameters: dict[str, str] = {}
    for parameter in content_type.split(";")[1:]:
        name, _, value = parameter.partition("=")
        parameters.setdefault(name.strip().lower(), value.strip().strip('"'))
    return parameters


def _text(encoded: bytes, charset: str) -> str:
    """By the codec that the request declares, which may be any that Python has, or none."""
    try:
        return encoded.decode(charset)
    except (UnicodeDecodeError, LookupError):
        return encoded.decode("latin-1")
    except ValueError as error:
        raise InvalidRequest("The form cannot be decoded.") from error
