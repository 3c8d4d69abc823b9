"""Which API a command speaks to."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from tidegate.settings import CLIENT_PREFIX

ApiUrl = Annotated[str, Option("--api", envvar=f"{CLIENT_PREFIX}URL", help="Address of the API.")]
ApiKey = Annotated[
    str | None,
    Option(
        "--api-key",
        envvar=f"{CLIENT_PREFIX}KEY",
        help="Where the API asks for one. Better in the variable: command lines can be read by others.",
    ),
]
AsJson = Annotated[bool, Option("--json", help="JSON, for programs.")]

#: A person who asks for one thing would rather know at once that the API is not there.
IMPATIENT_SECONDS = 2.0
