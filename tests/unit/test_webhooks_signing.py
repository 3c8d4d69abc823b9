"""Signatures: made by us, checked by others' code; made by others' code, checked by us."""

from __future__ import annotations

import base64
import hashlib
import hmac
from datetime import UTC, datetime, timedelta

import pytest
from standardwebhooks import Webhook

from tidegate.client import InvalidWebhook, verify
from tidegate.errors import SettingsError
from tidegate.settings import Settings, load_settings
from tidegate.webhooks.signing import new_secret, secrets_of, signed_headers

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
ID = "01978c7e-5f5e-7b30-8f4c-0d6f3a1c9d2e-succeeded"
BODY = '{"type":"job.succeeded","data":{"class_name":"Größe ☕"}}'.encode()


def test_signature_is_that_of_the_standard() -> None:
    """By a few lines of our own reading of it: HMAC-SHA256 over id, time and the exact bytes."""
    headers = signed_headers(ID, BODY, [SECRET], at=datetime(2026, 11, 29, tzinfo=UTC))
    signed = b".".join([ID.encode(), b"1795910400", BODY])
    expected = base64.b64encode(hmac.digest(bytes(range(32)), signed, hashlib.sha256)).decode()
    assert headers == {
        "webhook-id": ID,
        "webhook-timestamp": "1795910400",
        "webhook-signature": f"v1,{expected}",
    }


def test_library_takes_what_we_sign() -> None:
    """The receivers' own library, in whatever case its web server leaves the headers."""
    headers = {name.title(): value for name, value in signed_headers(ID, BODY, [SECRET]).items()}
    assert Webhook(SECRET).verify(BODY, headers)["type"] == "job.succeeded"


def test_verify_takes_what_is_fresh_and_signed() -> None:
    """And gives the event."""
    assert verify(BODY, signed_headers(ID, BODY, [SECRET]), SECRET)["data"] == {"class_name": "Größe ☕"}


@pytest.mark.parametrize("seconds", [-299, 299])
def test_verify_takes_a_clock_that_is_somewhat_off(seconds: int) -> None:
    """Up to five minutes in either direction."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    verify(BODY, signed_headers(ID, BODY, [SECRET], at=at), SECRET)


@pytest.mark.parametrize("seconds", [-302, 302])
def test_verify_refuses_what_is_not_fresh(seconds: int) -> None:
    """A recorded webhook cannot be played again later, and one from the future does not double the time."""
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    with pytest.raises(InvalidWebhook):
        verify(BODY, signed_headers(ID, BODY, [SECRET], at=at), SECRET)


@pytest.mark.parametrize("name", ["webhook-id", "webhook-timestamp", "webhook-signature"])
@pytest.mark.parametrize("change", ["missing", "empty", "changed", "nonsense"])
def test_verify_refuses_headers_that_are_not_what_was_sent(name: str, change: str) -> None:
    """Each of the three counts, to the last character, and none of them crashes a receiver."""
    headers = signed_headers(ID, BODY, [SECRET])
    value = headers.pop(name)
    changed = {"empty": "", "changed": value[:-2] + ("A" if value[-2] != "A" else "B") + value[-1], "nonsense": "é, ,"}
    if change != "missing":
        headers[name] = changed[change]
    with pytest.raises(InvalidWebhook):
        verify(BODY, headers, SECRET)


@pytest.mark.parametrize("position", [0, len(BODY) // 2, len(BODY) - 1])
def test_verify_refuses_a_body_that_differs_in_one_byte(position: int) -> None:
    """Also where the change leaves no valid text."""
    headers = signed_headers(ID, BODY, [SECRET])
    for change in (1, 128):
        changed = bytearray(BODY)
        changed[position] ^= change
        with pytest.raises(InvalidWebhook):
            verify(bytes(changed), headers, SECRET)


def test_verify_refuses_the_signature_of_another_secret() -> None:
    """Whoever does not know the secret cannot sign."""
    with pytest.raises(InvalidWebhook):
        verify(BODY, signed_headers(ID, BODY, [new_secret()]), SECRET)


def test_verify_says_when_the_secret_itself_is_none() -> None:
    """A receiver that is set up wrongly must not look like one that is attacked."""
    with pytest.raises(ValueError) as wrong:  # noqa: PT011 - that it is not the subclass is the point
        verify(BODY, signed_headers(ID, BODY, [SECRET]), "whsec_x")
    assert not isinstance(wrong.value, InvalidWebhook)


def test_secrets_change_without_a_gap() -> None:
    """While the sender signs with both, and the receiver takes either, old and new fit."""
    old, new = new_secret(), new_secret()
    headers = signed_headers(ID, BODY, [new, old])
    for known in (old, new, [old, new]):
        verify(BODY, headers, known)


def test_new_secret_is_one_that_the_settings_take() -> None:
    """32 random bytes, never the same."""
    made = {new_secret() for _ in range(10)}
    assert len(made) == 10
    assert secrets_of("", load_settings({}, webhook_secret=",".join(sorted(made)))) == tuple(sorted(made))


def test_no_secret_signs_where_none_is_set() -> None:
    """Webhooks are off until the operator sets one."""
    assert secrets_of("", load_settings({})) == ()


def test_client_has_its_own_secrets_or_those_of_all() -> None:
    """By the name of its key, to the letter; they are shown no more than the others."""
    own, newer = new_secret(), new_secret()
    settings = load_settings({}, webhook_secret=SECRET, webhook_secrets_by_client=f"alice={newer},{own};bob={own}")
    assert secrets_of("alice", settings) == (newer, own)
    assert secrets_of("bob", settings) == (own,)
    for other in ("", "ali", "alice2", "Alice"):
        assert secrets_of(other, settings) == (SECRET,)
    assert own not in repr(settings)


@pytest.mark.parametrize("secrets", ["alice", "alice=", f"={SECRET}", f"alice={SECRET};", "alice=sw0rdfish"])
def test_client_secrets_that_are_none_stop_the_start(secrets: str) -> None:
    """A client must not silently get everybody's secret for a slip in its own."""
    with pytest.raises(SettingsError, match="TIDEGATE_WEBHOOK_SECRETS_BY_CLIENT") as refused:
        load_settings({}, webhook_secrets_by_client=secrets)
    assert "sw0rdfish" not in str(refused.value)


@pytest.mark.parametrize(
    "secret",
    [
        "sw0rdfish",
        "whsec_",
        "whsec_sw0rdfish",
        "whsec_" + base64.b64encode(bytes(23)).decode(),
        "whsec_" + base64.b64encode(bytes(65)).decode(),
        SECRET + ",",
        f"{SECRET}, {SECRET}",
        f"{SECRET},sw0rdfish",
        SECRET.removeprefix("whsec_"),
    ],
)
def test_secret_that_is_none_stops_the_start_without_being_told(secret: str) -> None:
    """The message names the variable and how a secret looks; not what was there, which may be one with a slip."""
    with pytest.raises(SettingsError, match="TIDEGATE_WEBHOOK_SECRET") as refused:
        load_settings({}, webhook_secret=secret)
    told = f"{refused.value!r} {refused.value.__cause__}"
    assert "sw0rdfish" not in told
    assert SECRET not in told


def test_settings_do_not_show_the_secret() -> None:
    """They are printed and logged."""
    settings: Settings = load_settings({}, webhook_secret=SECRET)
    assert SECRET not in repr(settings) + str(settings.model_dump())
