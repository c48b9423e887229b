"""Problems in an agent definition, and the rules that they break (definition.md §9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stepflow.domain.agent.exposure import Exposure
from stepflow.domain.text import count


class Severity(StrEnum):
    """How serious a problem is. Only an error prevents the run."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem. `file` is relative to the repository root; `path` is a JSON Pointer into it.

    `line` and `column` are 1-based, or None if there is no location. The end is on the same line, one column past the
    problem. `fix` says what to change.
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
    """The problems of one agent."""

    problems: tuple[Problem, ...]
    #: Where the agent was read; None if its folder was refused.
    folder: str | None = None
    #: Problems name files below this prefix.
    prefix: str = ""
    #: Contents of the files with problems, by `Problem.file`.
    texts: Mapping[str, str] = field(default_factory=dict)
    #: Names of the MCP tools that its steps may use.
    mcp_tools: tuple[str, ...] = ()
    #: What meets in its steps, by the rule of two; empty if it has other errors.
    exposures: tuple[Exposure, ...] = ()


def count_problems(problems: Iterable[Problem]) -> str:
    """Describe in words how many problems of each severity there are."""
    counts = Counter(problem.severity for problem in problems)
    words = [count(counts[severity], severity) for severity in Severity if counts[severity]]
    return ", ".join(words) or "no problems"


@dataclass(frozen=True, kw_only=True)
class Example:
    """A part of a file. `pointer` is its JSON Pointer, empty for the whole file."""

    file: str
    pointer: str
    language: str
    text: str

    @property
    def location(self) -> str:
        """Describe where the part is."""
        return f"{self.file}, {self.pointer}" if self.pointer else self.file


@dataclass(frozen=True, kw_only=True)
class LintRule:
    """A rule for agent definitions. `broken` briefly says what is wrong, `why` says why it matters."""

    code: str
    severity: Severity
    broken: str
    why: str
    wrong: tuple[Example, ...]
    right: tuple[Example, ...]
