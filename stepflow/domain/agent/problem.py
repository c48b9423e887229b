"""Problems in an agent definition, the rules that they break (definition.md §9), and what meets in the conversation
of one step, by the rule of two (SECURITY.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stepflow.domain.text import count

#: What a message calls the rule.
RULE_OF_TWO = "rule of two"


@dataclass(frozen=True, kw_only=True)
class Exposure:
    """What meets in a step's conversation, in a private repository or in a public one. Each part names where it is
    from."""

    step_id: str
    private_repository: bool
    #: Text that strangers can write.
    untrusted: tuple[str, ...] = ()
    #: What not everybody may see.
    private: tuple[str, ...] = ()
    #: Where what the model knows can go.
    ways_out: tuple[str, ...] = ()
    #: Why the step may have all three; empty if the definition does not say.
    accepted: str = ""

    @property
    def has_all(self) -> bool:
        """Whether all three meet."""
        return bool(self.untrusted and self.private and self.ways_out)

    @property
    def breaks_rule(self) -> bool:
        """Whether all three meet and nobody accepts it."""
        return self.has_all and not self.accepted

    @property
    def repository(self) -> str:
        """The kind of repository."""
        return "private" if self.private_repository else "public"

    def __str__(self) -> str:
        return "; ".join(f"{part} ({', '.join(sources)})" for part, sources in self.parts.items() if sources)

    @property
    def parts(self) -> dict[str, tuple[str, ...]]:
        """Where each of the three is from, by its name; empty for one that is not there."""
        return {
            "text that strangers can write": self.untrusted,
            "something private": self.private,
            "a way out": self.ways_out,
        }


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
