"""The ``Idempotency-Key`` header: a repeated submission makes no second job.

Source: draft-ietf-httpapi-idempotency-key-header-07. The key is a structured field, that is a string in quotes; a bare
one is accepted too, as many clients send it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import orjson

from api.uploads import Upload
from tidegate.errors import InvalidRequest
from tidegate.jobs import Idempotency

MAX_KEY_CHARACTERS = 255

_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"(?:;.*)?')
_BARE = re.compile(r"[!#-+\--~]+")
_ESCAPE = re.compile(r"\\(.)")


def parse_idempotency_key(values: Sequence[str]) -> str | None:
    """The key in the values of all such headers of a request; None when there is none.

    Raises:
        InvalidRequest: there are several, or it is no key.
    """
    if not values:
        return None
    text = values[0].strip()
    quoted = _QUOTED.fullmatch(text)
    key = _ESCAPE.sub(r"\1", quoted[1]) if quoted else text if _BARE.fullmatch(text) else ""
    if len(values) > 1 or not 1 <= len(key) <= MAX_KEY_CHARACTERS:
        raise InvalidRequest(
            f"Idempotency-Key must be one string of 1 to {MAX_KEY_CHARACTERS} printable ASCII characters."
        )
    return key


def idempotency_of(key: str, upload: Upload) -> Idempotency:
    """What tells a repetition of this submission from another one under the same key.

    It is what was asked for that counts, not how it was written: the boundary of a form differs each time.
    """
    asked = orjson.dumps([upload.options.model_dump(), upload.image_url], option=orjson.OPT_SORT_KEYS)
    fingerprint = hashlib.sha256(asked)
    fingerprint.update(upload.image)
    return Idempotency(hashlib.sha256(key.encode()).hexdigest(), fingerprint.hexdigest())
