"""What the loader found so far.

Takes: findings from every check. Gives: the problems, each once, placed by line and sorted (registry.md §9).
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from stepflow.domain.json import compact
from stepflow.domain.problem import Problem, Severity
from stepflow.load.codes import CODES
from stepflow.load.json_text import find_places, nearest_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepflow.domain.json import JsonValue


@dataclass
class Findings:
    """Collects problems of one load; files are named relative to the agent folder."""

    found: dict[Problem, None] = field(default_factory=dict)
    #: The JSON files that were parsed, for finding lines.
    json_texts: dict[str, str] = field(default_factory=dict)

    def of(self, file: str, origin: Callable[[str], str] | None = None) -> FileFindings:
        """The same collection, for one file. `origin` leads from the pointer a check knows to the one in the file."""
        return FileFindings(findings=self, file=file, origin=origin or str)

    @property
    def failed(self) -> bool:
        """True when an error was found: the definition must not run."""
        return any(problem.severity is Severity.ERROR for problem in self.found)

    def problems(self, *, prefix: str) -> tuple[Problem, ...]:
        """All of them, sorted by file, line and code; `prefix` is the agent folder in the repository."""
        files = {one.file for one in self.found} & self.json_texts.keys()
        lines = {file: find_places(self.json_texts[file]).lines for file in files}
        placed = [_place(one, prefix, None if one.line else lines.get(one.file)) for one in self.found]
        return tuple(sorted(placed, key=lambda one: (one.file, one.line or 0, one.code, one.path, one.message)))


@dataclass(frozen=True, kw_only=True)
class FileFindings:
    """A `Findings` bound to one file."""

    findings: Findings
    file: str
    origin: Callable[[str], str]

    def add(
        self,
        code: str,
        path: str,
        message: str,
        fix: str,
        *,
        line: int | None = None,
        severity: Severity | None = None,
    ) -> None:
        """Report a problem at the JSON Pointer `path`; a `line` is only given where the file is no JSON."""
        problem = Problem(
            severity=severity or CODES[code].severity,
            code=code,
            file=self.file,
            path=self.origin(path),
            line=line,
            message=message,
            fix=fix,
        )
        self.findings.found[problem] = None

    def at(self, pointer: str) -> bool:
        """True when an error was reported at this pointer or below it."""
        pointer = self.origin(pointer)
        return self.failed_at(f"{re.escape(pointer)}(/.*)?")

    def failed_at(self, pattern: str) -> bool:
        """True when an error was reported at a pointer of this form."""
        return any(
            one.severity is Severity.ERROR and one.file == self.file and re.fullmatch(pattern, one.path, re.DOTALL)
            for one in self.findings.found
        )


def shown(value: JsonValue) -> str:
    """A value as it looks in a message: JSON, cut when long."""
    text = compact(value)
    return text if len(text) <= 80 else text[:79] + "…"


def nearest(word: str, known: Iterable[str]) -> str:
    """` (did you mean "x"?)`, or nothing when no known word is like it."""
    close = get_close_matches(word, sorted(known), n=1)
    return f' (did you mean "{close[0]}"?)' if close else ""


def visible(text: str) -> str:
    """A text without control characters: what a file says must not write lines of its own into a log."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def listed(words: Iterable[str]) -> str:
    """Words as `"a", "b"`, or `none`."""
    return ", ".join(f'"{word}"' for word in words) or "none"


def _place(problem: Problem, prefix: str, lines: dict[str, int] | None) -> Problem:
    return Problem(
        severity=problem.severity,
        code=problem.code,
        file=visible(f"{prefix}/{problem.file}"),
        path=visible(problem.path),
        line=problem.line if lines is None else nearest_line(lines, problem.path),
        message=visible(problem.message),
        fix=visible(problem.fix),
    )
