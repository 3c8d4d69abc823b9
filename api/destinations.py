"""What becomes of the URLs in a submission: judged as far as can be told now, before anything is accepted."""

from __future__ import annotations

from api.options import JobOptions
from tidegate.errors import InvalidField, UrlNotAllowed
from tidegate.jobs import Destination, State, Webhook
from tidegate.outbound import OutboundRules
from tidegate.outbound.rules import host_of
from tidegate.settings import Settings
from tidegate.webhooks.signing import secrets_of


class Destinations:
    """Judges URLs, one per process; it asks nobody."""

    def __init__(self, settings: Settings) -> None:
        """Read the rules.

        Raises:
            SettingsError: an ``outbound_`` setting is wrong.
        """
        self._rules = OutboundRules.from_settings(settings)
        self._settings = settings

    def image_at(self, url: str) -> Destination:
        """Where an image is to be fetched from.

        Raises:
            UrlNotAllowed: the URL leads where Tidegate does not go.
        """
        return self._judge("image_url", url)

    def webhook(self, options: JobOptions, *, path: str, client: str = "") -> Webhook | None:
        """Whom to tell of a job's end; None for nobody.

        Args:
            options: of the submission.
            path: of the job, as the client is told it.
            client: whose secret is to sign it.

        Raises:
            UrlNotAllowed: the URL leads where Tidegate does not go.
            InvalidField: there are events and no URL, or nothing to sign with.
        """
        if options.webhook_url is None:
            if options.webhook_events is not None:
                raise _refuse("#/webhook_events", "There is no webhook_url to which they could be sent.")
            return None
        if not secrets_of(client, self._settings):
            raise _refuse("#/webhook_url", "Webhooks are not set up here: there is no secret to sign them with.")
        events = frozenset(State(event.removeprefix("job.")) for event in options.webhook_events or ())
        return Webhook(self._judge("webhook_url", options.webhook_url), path, events, client)

    def _judge(self, field: str, text: str) -> Destination:
        try:
            url = self._rules.judge(text)
        except UrlNotAllowed as error:
            raise UrlNotAllowed(f"{field}: {error}") from error
        return Destination(str(url), host_of(url))


def _refuse(pointer: str, detail: str) -> InvalidField:
    return InvalidField("Some options are not right.", problems=((pointer, detail),))
