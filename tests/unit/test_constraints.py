"""``constraints.txt`` makes an install repeatable: it has a version for every package that an extra brings."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / "constraints.txt").read_text().splitlines()
    if line and not line.startswith("#")
]


def required(lines: list[str], extras: frozenset[str]) -> Iterator[Requirement]:
    """The requirements among the lines that hold on this machine, those of our own extras opened up."""
    for requirement in map(Requirement, lines):
        marker = requirement.marker
        if marker and not any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        if requirement.name == PROJECT["name"]:
            for extra in requirement.extras:
                yield from required(PROJECT["optional-dependencies"][extra], frozenset())
        else:
            yield requirement


def everything(lines: list[str]) -> set[str]:
    """Every package that these lines bring, with what those bring in turn."""
    found: set[tuple[str, frozenset[str]]] = set()
    todo = list(required(lines, frozenset()))
    while todo:
        requirement = todo.pop()
        one = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if one not in found:
            found.add(one)
            todo += required(_requires(requirement.name), one[1])
    return {name for name, _ in found}


def _requires(package: str) -> list[str]:
    try:
        return requires(package) or []
    except PackageNotFoundError:
        return []


def test_constraints_have_every_package_that_an_extra_brings() -> None:
    """No version is left to the day of the install."""
    brought = everything([*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["dev"]])
    assert brought <= {canonicalize_name(constraint.name) for constraint in CONSTRAINTS}


def test_constraints_leave_no_choice_of_version() -> None:
    """Each names exactly one; a range would be decided by the day of the install."""
    for constraint in CONSTRAINTS:
        (specifier,) = constraint.specifier
        assert specifier.operator == "=="
        assert "*" not in specifier.version
