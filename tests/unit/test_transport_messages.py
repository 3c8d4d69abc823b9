"""What a message says, read as kombu reads it, only sooner."""

from __future__ import annotations

import json
from base64 import b64encode
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from kombu.exceptions import ContentDisallowed, DecodeError
from kombu.transport import virtual
from kombu.utils.json import dumps

from worker.transport import JSON, Message


def message(body: bytes, *, content_type: str = JSON, cls: type[Any] = Message) -> Any:
    """A message as it comes out of Redis."""
    payload = {
        "body": b64encode(body).decode(),
        "content-type": content_type,
        "content-encoding": "utf-8",
        "headers": {},
        "properties": {"delivery_tag": "1", "body_encoding": "base64", "delivery_info": {}},
    }
    channel = SimpleNamespace(
        decode_body=virtual.Channel.decode_body.__get__(SimpleNamespace(codecs=virtual.Channel.codecs))
    )
    read = cls(payload, channel=channel)
    read.accept = {JSON}
    return read


@pytest.mark.parametrize(
    "value",
    [
        [["resnet"], {}, {}],
        [["ünïcode \u2028"], {"a": None, "b": 1.5e300}, {"chain": None}],
        [[datetime(2026, 11, 29, tzinfo=UTC)], {}, {}],
    ],
    ids=["ticket", "text", "kombu's own types"],
)
def test_arguments_are_those_that_kombu_reads(value: Any) -> None:
    """Also where kombu marks what JSON has no word for."""
    body = dumps(value).encode()
    assert message(body).payload == message(body, cls=virtual.Message).payload == value


@pytest.mark.parametrize("body", [b"{", b"\xff\xfe", b'[["a"], {}'])
def test_what_cannot_be_read_is_told_as_kombu_tells_it(body: bytes) -> None:
    """Celery knows what to do with that error, and with no other."""
    with pytest.raises(DecodeError):
        _ = message(body).payload


def test_nothing_but_what_is_accepted_is_read() -> None:
    """A pickle stays closed, and so does JSON where it is not wanted."""
    with pytest.raises(ContentDisallowed):
        _ = message(b"cos\nsystem\n.", content_type="application/x-python-serialize").payload
    unwanted = message(json.dumps([1]).encode())
    unwanted.accept = {"text/plain"}
    with pytest.raises(ContentDisallowed):
        _ = unwanted.payload
