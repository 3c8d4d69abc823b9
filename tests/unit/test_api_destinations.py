"""What becomes of the URLs in a submission before anything is accepted."""

from __future__ import annotations

import pytest

from api.destinations import Destinations
from api.options import JobOptions, options_from_json, options_from_text
from tidegate.errors import InvalidField, SettingsError, UrlNotAllowed
from tidegate.jobs import Destination, State, Webhook
from tidegate.settings import load_settings
from tidegate.webhooks.signing import new_secret

PATH = "/v1/jobs/j"


def destinations(**settings: str | None) -> Destinations:
    """Under these settings, and a secret unless they say otherwise."""
    return Destinations(load_settings({}, **{"webhook_secret": new_secret(), **settings}))


def test_webhook_has_its_url_in_the_usual_spelling_and_its_host() -> None:
    """As it is called and limited from here on."""
    options = JobOptions(webhook_url="HTTPS://Example.com./hook?a=b#c")
    webhook = destinations().webhook(options, path=PATH)
    assert webhook == Webhook(Destination("https://example.com/hook?a=b", "example.com:443"), PATH)


def test_webhook_tells_the_ends_that_were_asked_for() -> None:
    """By the words of the events, in JSON and in text."""
    asked = {"webhook_url": "https://example.com/", "webhook_events": ["job.failed", "job.expired"]}
    for options in (
        options_from_json(asked),
        options_from_text([("webhook_url", "https://example.com/"), ("webhook_events", "job.failed,job.expired")]),
    ):
        webhook = destinations().webhook(options, path=PATH)
        assert webhook is not None
        assert webhook.events == {State.FAILED, State.EXPIRED}


def test_nobody_is_told_where_nobody_asked() -> None:
    """Most jobs have no webhook."""
    assert destinations().webhook(JobOptions(), path=PATH) is None


def test_events_without_a_url_are_refused() -> None:
    """They would be lost without a word."""
    with pytest.raises(InvalidField) as refused:
        destinations().webhook(JobOptions(webhook_events=["job.failed"]), path=PATH)
    assert [pointer for pointer, _ in refused.value.problems] == ["#/webhook_events"]


def test_webhook_is_refused_where_there_is_no_secret() -> None:
    """An unsigned webhook could not be trusted, so there is none."""
    with pytest.raises(InvalidField) as refused:
        destinations(webhook_secret=None).webhook(JobOptions(webhook_url="https://example.com/"), path=PATH)
    assert [pointer for pointer, _ in refused.value.problems] == ["#/webhook_url"]


def test_refusal_says_which_url_is_meant() -> None:
    """There may be two in one submission."""
    with pytest.raises(UrlNotAllowed, match=r"^image_url: "):
        destinations().image_at("http://127.0.0.1/")
    with pytest.raises(UrlNotAllowed, match=r"^webhook_url: "):
        destinations().webhook(JobOptions(webhook_url="http://127.0.0.1/"), path=PATH)


def test_image_is_where_it_was_said_to_be() -> None:
    """In the usual spelling, with its host."""
    assert destinations().image_at("http://134744072/a") == Destination("http://8.8.8.8/a", "8.8.8.8:80")


@pytest.mark.parametrize("event", ["job.done", "succeeded", "job.queued", ""])
def test_event_that_is_none_is_refused(event: str) -> None:
    """A misspelt event would never be told."""
    with pytest.raises(InvalidField):
        options_from_json({"webhook_url": "https://example.com/", "webhook_events": [event]})
    with pytest.raises(InvalidField):
        options_from_text([("webhook_url", "https://example.com/"), ("webhook_events", event)])


def test_wrong_setting_stops_the_start() -> None:
    """Not the first submission."""
    with pytest.raises(SettingsError):
        destinations(outbound_allow="10.0.0.0/99")
