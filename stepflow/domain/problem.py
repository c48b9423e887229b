"""What is wrong with an agent definition, and the rules that it breaks (definition.md §9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stepflow.domain.text import count


class Severity(StrEnum):
    """An error forbids the run; a warning and a note do not."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One finding. `file` is relative to the repository root, `path` a JSON Pointer into it.

    `line` and `column` are 1-based, or None where there is no place; the end is the first column after what is meant,
    on the same line. `fix` says what to change.
    """

    severity: Severity
    code: str
    file: str
    path: str
    line: int | None
    message: str
    fix: str
    column: int | None = None
    end_column: int | None = None

    def __str__(self) -> str:
        location = f"{self.file}:{self.line}" if self.line else self.file
        pointer = f" ({self.path})" if self.path else ""
        return f"{location}: {self.severity} {self.code} {self.message}{pointer}. Fix: {self.fix}"


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The problems of one agent, and the texts of the files that they are in, by the problems' `file`; with the names
    of the tools of MCP servers that its steps may name.

    `folder` is where the agent was read, None when its folder was refused; problems name its files below `prefix`."""

    problems: tuple[Problem, ...]
    folder: str | None = None
    prefix: str = ""
    texts: Mapping[str, str] = field(default_factory=dict)
    mcp_tools: tuple[str, ...] = ()


def count_problems(problems: Iterable[Problem]) -> str:
    """How many problems of each severity there are, in words."""
    counts = Counter(problem.severity for problem in problems)
    words = [count(counts[severity], severity) for severity in Severity if counts[severity]]
    return ", ".join(words) or "no problems"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A piece of a file. `pointer` is the JSON Pointer of the piece, empty for a whole file."""

    file: str
    pointer: str
    language: str
    text: str

    @property
    def location(self) -> str:
        """Where the piece stands, in words."""
        return f"{self.file}, {self.pointer}" if self.pointer else self.file


@dataclass(frozen=True, kw_only=True)
class LintRule:
    """`broken` says in a few words what is wrong, `why` why that matters."""

    code: str
    severity: Severity
    broken: str
    why: str
    wrong: tuple[Example, ...]
    right: tuple[Example, ...]
