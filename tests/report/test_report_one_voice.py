"""What people read of a run is worded in one room: the others write events, and the doors print its lines."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "stepflow"
DOORS = ("action", "cli")
#: The first answers its parent on stdout, in JSON; the second keeps a package from logging.
NOT_FOR_PEOPLE = ("sandbox/child/probe.py", "mcp/servers.py")


def spoken(source: str) -> list[str]:
    """The places of a module that speak to people past the events."""
    outputs = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                outputs.append(f"{node.lineno}: print")
            case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr" | "__stdout__" | "__stderr__"):
                outputs.append(f"{node.lineno}: sys.{node.attr}")
            case ast.Import(names=names) if any(name.name.split(".")[0] in ("logging", "rich") for name in names):
                outputs.append(f"{node.lineno}: import")
            case ast.ImportFrom(module="rich.cells"):
                # It measures how wide a text is, and prints nothing.
                pass
            case ast.ImportFrom(module=str(module)) if module.split(".")[0] in ("logging", "rich"):
                outputs.append(f"{node.lineno}: import")
            case _:
                pass
    return outputs


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
