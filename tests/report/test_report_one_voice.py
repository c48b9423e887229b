"""What people read of a run is worded in one room: the others write events, and the doors print its lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "stepflow"
DOORS = ("action", "cli")
#: Answers its parent on stdout, in JSON: nobody reads it.
NOT_FOR_PEOPLE = ("toolbox/inner/probe.py",)


def spoken(source: str) -> list[str]:
    """The places of a module that speak to people past the events."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                found.append(f"{node.lineno}: print")
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr" | "__stdout__" | "__stderr__"):
                found.append(f"{node.lineno}: sys.{node.attr}")
            case ast.Import(names=names) if any(name.name.split(".")[0] in ("logging", "rich") for name in names):
                found.append(f"{node.lineno}: import")
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in ("logging", "rich"):
                found.append(f"{node.lineno}: import")
            case _:
                pass
    return found


@pytest.mark.parametrize(
    "source",
    ["print('done')", "import sys\nsys.stderr.write('x')", "import logging", "from rich.text import Text"],
)
def test_each_way_past_the_events_is_seen(source: str) -> None:
    assert len(spoken(source)) == 1


def test_no_room_below_the_doors_speaks_to_people_but_by_events() -> None:
    modules = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    below = [path for path in modules if path.parts[0] not in DOORS and path.as_posix() not in NOT_FOR_PEOPLE]
    assert len(below) > 100
    assert {str(path): said for path in below if (said := spoken((PACKAGE / path).read_text(encoding="utf-8")))} == {}
