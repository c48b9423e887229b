"""What the loader found so far.

Takes: findings from every check. Gives: the problems, each once, placed by line and sorted (registry.md §9).
May touch: nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from stepflow.definition.codes import CODES
from stepflow.definition.placing import Source, place, visible
from stepflow.domain.json import compact
from stepflow.domain.problem import Inspection, Problem, Severity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from stepflow.domain.json import JsonValue


@dataclass
class Findings:
    """Collects problems of one load; files are named relative to the agent folder."""

    #: Each problem with the words on its line that it is about, where the file is no JSON.
    found: dict[Problem, str] = field(default_factory=dict)
    #: The JSON files that were parsed, for finding places.
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
        return self.inspection(prefix=prefix, texts={}).problems

    def inspection(self, *, prefix: str, texts: Mapping[str, str]) -> Inspection:
        """The problems with the texts that they are in; `texts` are the files that were read, JSON or not."""
        named = {one.file for one in self.found}
        known = {**texts, **self.json_texts}
        sources = {file: Source.of(known[file], is_json=file in self.json_texts) for file in named & {*known}}
        placed = [place(one, word, prefix, sources.get(one.file)) for one, word in self.found.items()]
        return Inspection(
            problems=tuple(sorted(placed, key=lambda one: (one.file, one.line or 0, one.code, one.path, one.message))),
            texts={visible(f"{prefix}/{file}"): known[file] for file in named & {*known}},
        )


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
        column: int | None = None,
        word: str = "",
        severity: Severity | None = None,
    ) -> None:
        """Report a problem at the JSON Pointer `path`; a `line` is only given where the file is no JSON.

        `word` is what is meant on that line.
        """
        problem = Problem(
            severity=severity or CODES[code].severity,
            code=code,
            file=self.file,
            path=self.origin(path),
            line=line,
            column=column,
            message=message,
            fix=fix,
        )
        self.findings.found[problem] = word

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


#: How like two words must be, from 0 to 1, and two paths, which often share their folder and their ending.
LIKE_WORDS = 0.6
LIKE_PATHS = 0.75


def closest_match(word: str, known: Iterable[str], likeness: float = LIKE_WORDS) -> str | None:
    """The known word that is most like this one, if any is like it. Capitals make no difference."""
    plain = {one.casefold(): one for one in sorted(known, reverse=True)}
    close = get_close_matches(word.casefold(), sorted(plain), n=1, cutoff=likeness)
    return plain[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str], likeness: float = LIKE_WORDS) -> str:
    """` (did you mean "x"?)`, or nothing when no known word is like it."""
    match = closest_match(word, known, likeness)
    return f' (did you mean "{match}"?)' if match else ""


def listed(words: Iterable[str]) -> str:
    """Words as `"a", "b"`, or `none`."""
    return ", ".join(f'"{word}"' for word in words) or "none"
