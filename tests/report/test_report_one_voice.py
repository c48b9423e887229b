"""What people read of a run is worded in one room: the others write events, and the doors print its lines. The messages
of errors, which say what happened where, are sentences everywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "stepflow"
DOORS = ("action", "cli")
#: The first answers its parent on stdout, in JSON; the others keep a package from logging.
NOT_FOR_PEOPLE = ("sandbox/child/probe.py", "mcp/servers.py", "telemetry/export.py")


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


#: Errors that a person reads.
ERRORS = ("StepflowError", "InputError", "DefinitionError", "ModelError", "BoundaryError", "IsolationError")
#: What begins with a small letter in a sentence's first place, too: programs, and inputs before a colon.
PROGRAMS = ("git", "apt-get")
INPUT = re.compile(r"[a-z]+(-[a-z]+)*:$")


def written(message: ast.expr) -> list[list[ast.expr]]:
    """The parts of each text that a message may be; nothing for one that was made elsewhere."""
    match message:
        case ast.Constant(value=str()):
            return [[message]]
        case ast.JoinedStr(values=values):
            return [values]
        case ast.IfExp(body=body, orelse=orelse):
            return [*written(body), *written(orelse)]
        case _:
            return []


def faults(source: str) -> list[str]:
    """The messages of a module that do not begin as a sentence does, or do not end with a full stop."""
    problems = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id=name), args=[message, *_]) if name in ERRORS:
                for parts in written(message):
                    first, last = parts[0], parts[-1]
                    begin = first.value if isinstance(first, ast.Constant) else ""
                    word = str(begin).partition(" ")[0]
                    if word[:1].islower() and word not in PROGRAMS and not INPUT.match(word):
                        problems.append(f"{node.lineno}: begins with a small letter: {begin}")
                    if isinstance(last, ast.Constant) and last.value and not str(last.value).endswith("."):
                        problems.append(f"{node.lineno}: has no full stop: {last.value}")
            case _:
                pass
    return problems


def test_a_message_that_is_no_sentence_is_seen() -> None:
    assert len(faults("InputError('the label is empty')")) == 2
    assert len(faults("BoundaryError(f'{name} is empty' if name else 'nothing.')")) == 2
    assert faults("InputError(f'pass-env: `{name}` is a secret.'); InputError(said); InputError('git failed.')") == []


def test_the_message_of_every_error_is_a_sentence() -> None:
    modules = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py")]
    assert {str(path): bad for path in modules if (bad := faults((PACKAGE / path).read_text(encoding="utf-8")))} == {}
