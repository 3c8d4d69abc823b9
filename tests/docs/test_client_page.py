"""``docs/client.md`` and ``docs/cli.md`` say what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from tidegate.cli import failures
from tidegate.cli.commands import app
from tidegate.client import Options, errors

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_client_page_shows_the_tree_of_errors() -> None:
    """The tree in docs is the one at the head of the module that defines it."""
    shown = re.search(r"<!-- errors -->\n```\n(.*?)```\n<!-- /errors -->", (DOCS / "client.md").read_text(), re.DOTALL)
    assert shown is not None
    tree = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    assert inspect.cleandoc(shown[1]) == inspect.cleandoc(tree)


def test_tree_of_errors_has_every_class() -> None:
    """Nobody has to read the code to know what may be raised."""
    classes = {
        name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, errors.ClientError)
    }
    assert classes == set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"ClientError"}


def test_client_page_names_every_option() -> None:
    """What a submission may ask for stands in the list."""
    page = (DOCS / "client.md").read_text()
    assert [name for name in Options.__annotations__ if f"`{name}`" not in page] == []


def test_cli_page_has_every_exit_code() -> None:
    """The table is that of the code."""
    codes = {value for name, value in vars(failures).items() if name.isupper() and isinstance(value, int)}
    table = set(map(int, re.findall(r"^\| (\d+)", (DOCS / "cli.md").read_text(), re.MULTILINE)))
    assert table == codes | {0, 2}


def test_cli_page_names_no_command_that_is_not_there() -> None:
    """Every ``tidegate COMMAND`` on the page is one."""
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name for group in app.registered_groups if group.name}
    page = (DOCS / "cli.md").read_text()
    assert set(re.findall(r"tidegate ([a-z]+)\b", page)) <= commands
