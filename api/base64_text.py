"""Base64 as people really send it, decoded strictly.

Accepted are a data URI, the standard and the URL-safe alphabet, missing padding, and lines that end in CR or LF.
Everything else is refused, a blank inside above all: it is usually a ``+`` that got lost on the way, and a
lenient decoder would make another image of it.
"""

from __future__ import annotations

import binascii
import re

from tidegate.errors import ImageTooLarge, InvalidBase64

#: What goes before the data of a data URI, in front of its first comma. Source: RFC 2397.
_DATA_URI_HEAD = re.compile(r"data:(image/[\w.+-]+|application/octet-stream)?(;[\w-]+=[^;,]*)*;base64", re.IGNORECASE)
_MAX_DATA_URI_HEAD = 256
#: Characters decoded at a time, a multiple of 4. Each such call takes less than a millisecond, after which other
#: threads, and so the event loop, may run.
_CHUNK = 256 * 1024


def decode_base64(text: str, *, max_bytes: int) -> bytes:
    """The bytes that ``text`` stands for.

    Raises:
        InvalidBase64: it is no base64 in any of the accepted spellings, or empty.
        ImageTooLarge: it stands for more than ``max_bytes``; found out without decoding it.
    """
    digits = _digits(text)
    if len(digits) * 3 // 4 > max_bytes:
        raise ImageTooLarge(f"The image has more than {max_bytes} bytes, which is the most that is accepted.")
    try:
        return b"".join(_decode(digits[start : start + _CHUNK]) for start in range(0, len(digits), _CHUNK))
    except binascii.Error as error:
        raise InvalidBase64("The image is no base64.") from error


def _digits(text: str) -> bytes:
    """The base64 digits alone, in the standard alphabet, without padding."""
    if text[:5].lower() == "data:":
        head, comma, text = text.partition(",")
        if not comma or len(head) > _MAX_DATA_URI_HEAD or not _DATA_URI_HEAD.fullmatch(head):
            raise InvalidBase64("The data URI is none of an image in base64: data:image/png;base64,...")
    try:
        # Replacing what is not there costs next to nothing, unlike a translation of every byte.
        encoded = text.encode("ascii").replace(b"\n", b"").replace(b"\r", b"")
    except UnicodeEncodeError as error:
        raise InvalidBase64("The image is no base64: it has characters that are no ASCII.") from error
    digits = encoded.rstrip(b"=")
    padding = len(encoded) - len(digits)
    if not digits:
        raise InvalidBase64("The base64 text of the image is empty.")
    if len(digits) % 4 == 1 or padding not in (0, -len(digits) % 4):
        raise InvalidBase64("The base64 text of the image is cut off: its length is one that cannot be.")
    return digits.replace(b"-", b"+").replace(b"_", b"/")


def _decode(digits: bytes) -> bytes:
    return binascii.a2b_base64(digits + b"=" * (-len(digits) % 4), strict_mode=True)
