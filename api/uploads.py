"""A submission in any of its three forms, read and checked: the image's bytes and the options beside it.

``multipart/form-data`` has the image as the part ``image`` and the options as other parts; JSON has it as base64
in the field ``image``; any other accepted body is the image itself, with the options in the query. What the image
is declared to be counts for nothing: its first bytes tell.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import orjson
from anyio import to_thread
from starlette.datastructures import UploadFile
from starlette.requests import Request

from api.base64_text import decode_base64
from api.options import JobOptions, options_from_json, options_from_text
from tidegate.errors import InvalidField, InvalidRequest, UnsupportedFormat
from tidegate.formats import ImageLimits, check_encoded
from tidegate.settings import Settings

#: A body of JSON that is larger is parsed and decoded in a thread; below, it takes less time than the way there.
INLINE_JSON_BYTES = 64 * 1024
#: Threads that parse at the same time. Parsing holds the interpreter most of the time: a second thread would not be
#: faster, but stand in the way of the event loop.
PARSING_THREADS = 1
#: Parts of a form beside the image, and bytes in one of them: metadata is the largest.
MAX_FORM_FIELDS = 16
MAX_FORM_FIELD_BYTES = 16 * 1024
#: Bytes of a body that are neither image nor base64: options, boundaries, names.
BODY_SLACK_BYTES = 64 * 1024

_FORMS = (
    "Send the image as its plain bytes (image/* or application/octet-stream), as the part 'image' of "
    "multipart/form-data, or in base64 as the field 'image' of application/json."
)


@dataclass(frozen=True)
class Upload:
    """A submission that can be read: the encoded image, and what is asked for."""

    image: bytes
    options: JobOptions


def max_body_bytes(settings: Settings) -> int:
    """The largest body that may be an acceptable image: base64 in lines of 76 characters with CR and LF."""
    base64_bytes = -(-settings.max_image_bytes // 3) * 4
    return base64_bytes + base64_bytes // 76 * 2 + BODY_SLACK_BYTES


class UploadReader:
    """Reads submissions, one per process; bounds what parsing may take from everybody else."""

    def __init__(self, settings: Settings) -> None:
        self._limits = ImageLimits(max_bytes=settings.max_image_bytes, max_pixels=settings.max_image_pixels)
        self._threads = anyio.CapacityLimiter(PARSING_THREADS)

    async def read(self, request: Request) -> Upload:
        """Read the body in the form that its content type says.

        Raises:
            InvalidRequest: the body cannot be read in that form.
            InvalidField: an option is wrong, or the image is missing.
            InvalidBase64, ImageTooLarge, ImageCorrupt, UnsupportedFormat: the image is not acceptable.
        """
        upload = await self._reader_for(request)(request)
        check_encoded(upload.image, self._limits)
        return upload

    def _reader_for(self, request: Request) -> Callable[[Request], Awaitable[Upload]]:
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedFormat("A body with a Content-Encoding is not accepted: images are compressed already.")
        media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if media_type == "multipart/form-data":
            return self._read_form
        if media_type == "application/json" or media_type.endswith("+json"):
            return self._read_json
        if media_type in ("", "application/octet-stream") or media_type.startswith("image/"):
            return self._read_plain
        raise UnsupportedFormat(f"This content type is not accepted. {_FORMS}")

    async def _read_plain(self, request: Request) -> Upload:
        options = options_from_text(request.query_params.multi_items())
        return Upload(await _body(request), options)

    async def _read_json(self, request: Request) -> Upload:
        _refuse_query(request)
        body = await _body(request)
        if len(body) <= INLINE_JSON_BYTES:
            return self._parse_json(body)
        return await to_thread.run_sync(self._parse_json, body, limiter=self._threads)

    def _parse_json(self, body: bytes) -> Upload:
        try:
            document = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise InvalidRequest(
                "The body is no JSON: broken, too deep, or with a number or text out of range."
            ) from error
        if not isinstance(document, dict):
            raise InvalidRequest("The body must be a JSON object.")
        image = document.pop("image", None)
        options = options_from_json(document)
        if not isinstance(image, str):
            problem = ("#/image", "The image must be a string: base64, or a data URI.")
            raise InvalidField("The image is missing.", problems=(problem,))
        return Upload(decode_base64(image, max_bytes=self._limits.max_bytes), options)

    async def _read_form(self, request: Request) -> Upload:
        _refuse_query(request)
        try:
            async with request.form(
                max_files=1, max_fields=MAX_FORM_FIELDS, max_part_size=MAX_FORM_FIELD_BYTES
            ) as form:
                return await _from_parts(form.multi_items())
        except UnicodeError as error:
            # Texts are decoded by the charset that the request declares, which may be any codec Python has.
            raise InvalidRequest("The form cannot be decoded.") from error


async def _from_parts(parts: Sequence[tuple[str, UploadFile | str]]) -> Upload:
    """The submission out of a form's parts; its files are gone once the request is."""
    images = [part for name, part in parts if name == "image"]
    texts = [(name, part) for name, part in parts if name != "image" and isinstance(part, str)]
    if len(images) + len(texts) < len(parts):
        raise InvalidRequest("A part other than 'image' is a file.")
    options = options_from_text(texts)
    if len(images) != 1:
        raise InvalidRequest("The form must have exactly one part 'image'.")
    if isinstance(images[0], str):
        problem = ("#/image", "The part must be a file: its Content-Disposition needs a filename.")
        raise InvalidField("The image is not a file.", problems=(problem,))
    return Upload(await images[0].read(), options)


async def _body(request: Request) -> bytes:
    """The whole body; unlike ``request.body()`` it is not kept with the request."""
    async with aclosing(request.stream()) as chunks:
        return b"".join([chunk async for chunk in chunks])


def _refuse_query(request: Request) -> None:
    if request.query_params:
        problem = ("#", "In this form the options belong into the body; only plain bytes have them in the query.")
        raise InvalidField("The query must be empty.", problems=(problem,))
