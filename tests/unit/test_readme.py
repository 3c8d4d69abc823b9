"""What README and docs say is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

from tidegate.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
BETWEEN = re.compile(r"<!-- settings -->\n(.*?)<!-- /settings -->", re.DOTALL)


def settings_table() -> str:
    """The table of settings, as README shows it."""
    rows = ["| variable | default | what |", "|---|---|---|"]
    for name, field in Settings.model_fields.items():
        value = field.get_default(call_default_factory=True)
        default = "" if value is None or value == {} else str(value)
        rows.append(f"| `{PREFIX}{name.upper()}` | {f'`{default}`' if default else ''} | {field.description} |")
    return "\n".join(rows) + "\n"


def test_readme_lists_every_setting_with_its_default() -> None:
    """The table in README is the one that the settings make; print it with ``python -m tests.unit.test_readme``."""
    found = BETWEEN.search((ROOT / "README.md").read_text())
    assert found is not None
    assert found[1] == settings_table()


def test_links_of_the_docs_lead_somewhere() -> None:
    """Every relative link in README and docs names a file that exists."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def rewrite() -> None:
    """Put the table into README."""
    page = ROOT / "README.md"
    page.write_text(BETWEEN.sub(lambda _: f"<!-- settings -->\n{settings_table()}<!-- /settings -->", page.read_text()))


if __name__ == "__main__":
    rewrite()
