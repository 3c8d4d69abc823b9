"""``tidegate webhooks``: what did not get through, once more, and whether a receiver understands us."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.table import Table
from typer import Argument, Option

from tidegate.cli.address import AsJson
from tidegate.cli.failures import FAILED, told
from tidegate.cli.output import table_console
from tidegate.errors import SettingsError
from tidegate.ledger import Ledger
from tidegate.settings import load_settings
from tidegate.store import connect
from tidegate.webhooks.deliveries import Delivery, redeliver
from tidegate.webhooks.lookup import undelivered, waiting_deliveries

webhooks = typer.Typer(help="Look at webhook deliveries, repeat them, and try receivers.", no_args_is_help=True)

TEST_EVENT = "tidegate.test"


@webhooks.command("list")
def list_deliveries(
    *,
    ended: Annotated[bool, Option("--ended", help="Those that ended undelivered; else those that still wait.")] = False,
    limit: Annotated[int, Option(min=1, help="Most deliveries to show.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List deliveries that wait for their time, or that did not get through."""
    with told(), _ledger() as ledger:
        look_up = undelivered if ended else waiting_deliveries
        found = look_up(ledger.client, ledger.commands.settings, most=limit)
    if as_json:
        typer.echo(json.dumps([_document(delivery) for delivery in found], indent=2))
    else:
        table_console().print(delivery_table(found))


@webhooks.command("redeliver")
def redeliver_webhooks(delivery_ids: Annotated[list[str], Argument(metavar="ID...")]) -> None:
    """Send deliveries once more, whatever became of them; also to a URL that said 410."""
    with told(), _ledger() as ledger:
        states = ledger.run(redeliver(delivery_ids))
    for delivery_id, state in zip(delivery_ids, states, strict=True):
        typer.echo(f"{delivery_id} {state}")
    if "unknown" in states:
        raise typer.Exit(FAILED)


@webhooks.command()
def send_test(url: Annotated[str, Argument(metavar="URL")]) -> None:
    """Send a signed test event to a URL, by the rules for any webhook, and print how it was answered."""
    # httpx and what is below it take their time to import.
    from tidegate.outbound import Door  # noqa: PLC0415
    from tidegate.webhooks.sending import send  # noqa: PLC0415
    from tidegate.webhooks.signing import secrets_of, signed_headers  # noqa: PLC0415

    with told():
        settings = load_settings()
        secrets = secrets_of("", settings)
        if not secrets:
            raise SettingsError("TIDEGATE_WEBHOOK_SECRET is not set, so there is nothing to sign with")
        now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        body = json.dumps({"type": TEST_EVENT, "timestamp": now, "data": {}}).encode()
        headers = signed_headers(f"test-{uuid.uuid4()}", body, secrets)
        with closing(Door(settings, connections=1)) as door:
            answer = send(door, url, body, headers=headers, limit_seconds=settings.webhook_timeout_seconds)
    typer.echo(" ".join(str(part) for part in (answer.status, answer.note) if part))
    if answer.status is None or not 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's own
        raise typer.Exit(FAILED)


@webhooks.command()
def secret() -> None:
    """Print a fresh secret for TIDEGATE_WEBHOOK_SECRET and for the receivers."""
    with told():
        from tidegate.webhooks.signing import new_secret  # noqa: PLC0415 - needs an extra that other commands do without

        typer.echo(new_secret())


def delivery_table(deliveries: Sequence[Delivery]) -> Table:
    """One row a delivery."""
    table = Table("id", "event", "host", "state", "attempts", "last answer", "next")
    for each in deliveries:
        table.add_row(
            each.id,
            each.event,
            each.host,
            each.state,
            str(each.attempts),
            " ".join(str(part) for part in (each.status, each.note) if part),
            _moment(each.due_ms) or "",
        )
    return table


def _document(each: Delivery) -> dict[str, Any]:
    return {
        "id": each.id,
        "job_id": each.job_id,
        "event": each.event,
        "host": each.host,
        "state": each.state,
        "attempts": each.attempts,
        "last_status": each.status,
        "last_note": each.note or None,
        "created_at": _moment(each.created_ms),
        "last_attempt_at": _moment(each.last_ms),
        "next_attempt_at": _moment(each.due_ms),
    }


def _moment(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


@contextmanager
def _ledger() -> Iterator[Ledger]:
    settings = load_settings()
    with connect(settings) as client:
        yield Ledger(client, settings)
