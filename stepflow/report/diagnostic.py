"""The problems of agents for a person: what, where, why, and what to write instead.

Takes: problems with the texts that they are in, and the rules. Gives: lines that no runner and no terminal obeys,
whose files a pull request may have changed (security.md case 6).
May touch: nothing.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from stepflow.domain.problem import Severity, count_problems
from stepflow.report.excerpt import excerpt
from stepflow.report.plain import defuse, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from stepflow.domain.problem import Inspection, Problem
    from stepflow.domain.rule import Rule

#: A text in a problem is not shown longer than this, and a line of a file not wider where nobody says how wide.
LONGEST = 1000
WIDE = 160


class Ink(StrEnum):
    """What a piece of a line is, for its colour."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"
    FRAME = "frame"
    HELP = "help"


@dataclass(frozen=True, kw_only=True)
class Paper:
    """What is written on. `width` is None where lines may be of any length, as in a file; `ink` colours a piece."""

    width: int | None = None
    ink: Callable[[Ink, str], str] = field(default=lambda _ink, text: text)


def diagnostics(found: Mapping[str, Inspection], rules: Mapping[str, Rule], paper: Paper) -> tuple[str, ...]:
    """Every problem of every agent, how many there are, and where to read more. A reason is given once."""
    lines: list[str] = []
    told: set[str] = set()
    for inspection in found.values():
        for problem in inspection.problems:
            why = rules[problem.code].why if problem.code in rules and problem.code not in told else ""
            told.add(problem.code)
            lines += [*_lines(problem, inspection.texts.get(problem.file), why, paper), ""]
    lines += [_counted(agent, inspection) for agent, inspection in found.items()]
    first = _first_code(found)
    if first:
        lines.append(f"More about a problem: stepflow explain {first}")
    return tuple(lines)


def _counted(agent: str, inspection: Inspection) -> str:
    return defuse(f"{one_line(agent)}: {count_problems(inspection.problems)}")


def _first_code(found: Mapping[str, Inspection]) -> str:
    problems = [problem for inspection in found.values() for problem in inspection.problems]
    errors = [problem for problem in problems if problem.severity is Severity.ERROR]
    return (errors or problems)[0].code if problems else ""


def _lines(problem: Problem, text: str | None, why: str, paper: Paper) -> Iterator[str]:
    ink = Ink(problem.severity.value)
    head = f"{problem.severity}[{problem.code}]"
    yield from _wrapped(f"{head}: {one_line(problem.message, LONGEST)}", "  ", head, ink, paper)
    gutter = len(str(problem.line or 1))
    place = ":".join(str(part) for part in (problem.file, problem.line, problem.column) if part)
    yield defuse(f"{' ' * gutter}{paper.ink(Ink.FRAME, '-->')} {one_line(place, LONGEST)}")
    yield from _excerpt(problem, text, gutter, paper)
    lead = f"{' ' * gutter} ="
    if why:
        yield from _wrapped(f"{lead} why: {why}", " " * (gutter + 3), lead, Ink.FRAME, paper)
    yield from _wrapped(f"{lead} help: {one_line(problem.change, LONGEST)}", " " * (gutter + 3), lead, Ink.HELP, paper)
    if problem.suggestion and problem.fix != problem.change:
        other = f"{lead} or: {one_line(problem.fix, LONGEST)}"
        yield from _wrapped(other, " " * (gutter + 3), lead, Ink.FRAME, paper)


def _excerpt(problem: Problem, text: str | None, gutter: int, paper: Paper) -> Iterator[str]:
    if text is None or problem.line is None:
        return
    columns = (problem.column, problem.end_column) if problem.column and problem.end_column else None
    shown = excerpt(text, problem.line, columns, room=(paper.width or WIDE) - gutter - 3)
    if shown is None:
        return
    bar = paper.ink(Ink.FRAME, f"{' ' * gutter} |")
    yield bar
    for number, line in shown.lines:
        yield defuse(f"{paper.ink(Ink.FRAME, f'{number:>{gutter}} |')} {line}".rstrip())
    if shown.mark:
        blank = len(shown.mark) - len(shown.mark.lstrip())
        yield f"{bar} {' ' * blank}{paper.ink(Ink(problem.severity.value), shown.mark.lstrip())}"


def _wrapped(text: str, indent: str, head: str, ink: Ink, paper: Paper) -> Iterator[str]:
    """A text on as many lines as it needs; its `head` is coloured."""
    lines = [text]
    if paper.width is not None:
        lines = textwrap.wrap(
            text, paper.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
        )
    for line in lines:
        safe = defuse(line)
        yield paper.ink(ink, head) + safe[len(head) :] if safe.startswith(head) else safe
