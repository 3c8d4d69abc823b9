"""A submission in any of its three forms, read and checked: the image's bytes and the options beside it.

``multipart/form-data`` has the image as the part ``image`` and the options as other parts; JSON has it as base64
in the field ``image``, or tells in ``image_url`` where it is to be fetched from; any other accepted body is the image
itself, with the options in the query. What the image is declared to be counts for nothing: its first bytes tell.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

import anyio
import orjson
from anyio import to_thread
from starlette.requests import Request

from api.base64_text import decode_base64
from api.forms import read_form
from api.options import JobOptions, options_from_json, options_from_text
from tidegate.errors import InvalidField, InvalidRequest, RequestError, UnsupportedFormat
from tidegate.formats import ImageLimits, check_encoded, declared_size
from tidegate.regions import check_regions
from tidegate.settings import Settings

#: A body of JSON that is larger is parsed and decoded in a thread; below, it takes less time than the way there.
INLINE_JSON_BYTES = 64 * 1024
#: Threads that parse at the same time. Parsing holds the interpreter most of the time: a second thread would not be
#: faster, but stand in the way of the event loop.
PARSING_THREADS = 1
#: Images in one form of many.
MAX_BATCH_IMAGES = 1000
#: Bytes of a body that are neither image nor base64: options, boundaries, names.
BODY_SLACK_BYTES = 64 * 1024

_FORMS = (
    "Send the image as its plain bytes (image/* or application/octet-stream), as the part 'image' of "
    "multipart/form-data, in base64 as the field 'image' of application/json, or its URL as the field 'image_url'."
)


@dataclass(frozen=True)
class Upload:
    """A submission that can be read: the encoded image, and what is asked for.

    Attributes:
        image: empty where there is an ``image_url``.
        options: beside the image.
        image_url: where the image is, as the client wrote it; not judged yet.
    """

    image: bytes
    options: JobOptions
    image_url: str | None = None


@dataclass(frozen=True)
class Uploads:
    """Many images with the same options.

    Attributes:
        each: in their order; where an image is not acceptable, why.
        options: of all of them.
    """

    each: list[Upload | RequestError]
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
            InvalidField: an option is wrong, or the image is missing, or a region reaches beyond it.
            InvalidBase64, ImageTooLarge, ImageCorrupt, UnsupportedFormat: the image is not acceptable.
        """
        upload = await self._reader_for(request)(request)
        self._check(upload)
        return upload

    async def read_many(self, request: Request) -> Uploads:
        """Read a form with many parts ``image``.

        Raises:
            InvalidRequest: the body cannot be read, or has no image in it, or too many.
            InvalidField: an option is wrong.
            UnsupportedFormat: it is no form.
        """
        self._refuse_encodings(request)
        if _media_type(request) != "multipart/form-data":
            raise UnsupportedFormat("Many images come as the parts 'image' of one multipart/form-data.")
        _refuse_query(request)
        form = await read_form(request, max_images=MAX_BATCH_IMAGES)
        options = options_from_text(form.texts)
        return Uploads([self._checked(Upload(image, options)) for image in form.images()], options)

    def _checked(self, upload: Upload) -> Upload | RequestError:
        try:
            self._check(upload)
        except RequestError as error:
            return error
        return upload

    def _check(self, upload: Upload) -> None:
        if upload.image_url is None:
            check_encoded(upload.image, self._limits)
        if upload.options.boxes is not None:
            check_regions(upload.options.boxes, _upright_sizes(upload.image), max_pixels=self._limits.max_pixels)

    @staticmethod
    def _refuse_encodings(request: Request) -> None:
        if request.headers.get("content-encoding", "identity").lower() != "identity":
            raise UnsupportedFormat("A body with a Content-Encoding is not accepted: images are compressed already.")

    def _reader_for(self, request: Request) -> Callable[[Request], Awaitable[Upload]]:
        self._refuse_encodings(request)
        media_type = _media_type(request)
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
        image, image_url = document.pop("image", None), document.pop("image_url", None)
        options = options_from_json(document)
        if isinstance(image_url, str) and image is None:
            return Upload(b"", options, image_url)
        if image_url is not None:
            problem = ("#/image_url", "The URL must be a string, and there must be no image beside it.")
            raise InvalidField("It is not clear which image is meant.", problems=(problem,))
        if not isinstance(image, str):
            problem = ("#/image", "The image must be a string: base64, or a data URI.")
            raise InvalidField("The image is missing.", problems=(problem,))
        return Upload(decode_base64(image, max_bytes=self._limits.max_bytes), options)

    async def _read_form(self, request: Request) -> Upload:
        _refuse_query(request)
        form = await read_form(request, max_images=1)
        options = options_from_text(form.texts)
        return Upload(form.images()[0], options)


def _media_type(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _upright_sizes(image: bytes) -> list[tuple[int, int]]:
    """Width and height that the upright image may have; whether it lies on its side only a decoder knows."""
    size = declared_size(image)
    return [] if size is None else [size, size[::-1]]


async def _body(request: Request) -> bytes:
    """The whole body; unlike ``request.body()`` it is not kept with the request."""
    async with aclosing(request.stream()) as chunks:
        return b"".join([chunk async for chunk in chunks])


def _refuse_query(request: Request) -> None:
    if request.scope["query_string"]:
        problem = ("#", "In this form the options belong into the body; only plain bytes have them in the query.")
        raise InvalidField("The query must be empty.", problems=(problem,))
