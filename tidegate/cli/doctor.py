"""``tidegate doctor``: looks at all that Tidegate stands on, and says what to do."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

import typer
from rich.console import Console
from rich.text import Text

from tidegate.cli.address import AsJson
from tidegate.cli.failures import FAILED
from tidegate.doctor.finding import Finding, Verdict, fault, fine
from tidegate.doctor.machine import look_at_machine
from tidegate.doctor.models import look_at_models
from tidegate.doctor.ports import look_at_ports
from tidegate.doctor.store import look_at_store
from tidegate.errors import SettingsError
from tidegate.settings import load_settings

STYLES = {Verdict.FINE: "green", Verdict.WARNING: "yellow", Verdict.FAULT: "bold red"}


def doctor(*, as_json: AsJson = False) -> None:
    """Check Python, Redis, Triton, the models, clocks and ports, and say what to do. Fails where there is a fault."""
    console = Console(highlight=False, soft_wrap=True)
    found = Counter[Verdict]()
    findings = []
    for finding in examine():
        found[finding.verdict] += 1
        findings.append(asdict(finding))
        if not as_json:
            console.print(_line(finding))
    if as_json:
        typer.echo(json.dumps(findings, indent=2))
    else:
        console.print(f"{found[Verdict.FAULT]} faults, {found[Verdict.WARNING]} warnings.")
    if found[Verdict.FAULT]:
        raise typer.Exit(FAILED)


def examine() -> Iterator[Finding]:
    """All findings, each as soon as it is made."""
    yield from look_at_machine()
    try:
        settings = load_settings()
    except SettingsError as error:
        yield fault("settings", str(error), "Without settings there is nobody to ask. README.md lists them.")
    else:
        yield fine("settings", f"Redis, Triton and limits from the environment, keys under {settings.key_prefix}")
        yield from look_at_store(settings)
        yield from look_at_models(settings)
    yield from look_at_ports()


def _line(finding: Finding) -> Text:
    line = Text.assemble((f"{finding.verdict:<8}", STYLES[finding.verdict]), f"{finding.subject}: {finding.facts}")
    return line.append(f"\n{'':<8}{finding.advice}") if finding.advice else line
