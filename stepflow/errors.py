"""Errors that end a run before or outside the flow, and the problems of an agent definition with the rules that they
break (definition.md §9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar


class StepflowError(Exception):
    """The run cannot continue. `message` says what happened and where; `hint` says what the workflow author should
    change; `code` is the rule that was broken, if any.

    A message is one line, whatever names it quotes. One of several lines is given line by line.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str | tuple[str, ...], *, hint: str = "", code: str | None = None) -> None:
        lines = (message,) if isinstance(message, str) else message
        self.message = "\n".join(map(_one_line, lines))
        super().__init__(self.message)
        self.hint = _one_line(hint)
        self.code = code

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


class InputError(StepflowError):
    """An action input, a flag, an event file or a run argument is wrong: exit 2."""

    exit_code = 2


class Severity(StrEnum):
    """How serious a problem is. Only an error prevents the run."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One problem. `file` is relative to the repository root; `path` is a JSON Pointer into it.

    `file` is empty for a problem of a shipped agent. `line` and `column` are 1-based, or None if there is no location.
    The end is on the same line, one column past the problem. `fix` says what to change.
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
        location = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        pointer = f" ({self.path})" if self.path else ""
        return f"{location}{self.severity} {self.code} {self.message}{pointer}. Fix: {self.fix}"


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
    """A rule for agent definitions. `broken` briefly says what is wrong, `why` says why it matters, `page` is the
    address of its documentation."""

    code: str
    group: str
    page: str
    severity: Severity
    broken: str
    why: str
    wrong: tuple[Example, ...]
    right: tuple[Example, ...]


class DefinitionError(StepflowError):
    """An agent definition is invalid: exit 2. Holds *all* problems found, rendered one per line."""

    exit_code = 2

    def __init__(self, message: str, *, problems: Sequence[Problem] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(_one_line(str(problem)) for problem in self.problems)))


class ModelError(StepflowError):
    """The model cannot be called at all (no key, bad address). A failed call is a `ModelFault` value instead."""


class BoundaryError(StepflowError):
    """A write to GitHub failed, or its result could not be confirmed."""


class Refused(BoundaryError):
    """The trust rules forbid writing; nothing was written."""


class TakenBack(Refused):
    """What asked for the run was taken back before it began, so nobody is told on the issue."""


class BeyondCap(Refused):
    """The caps of the day leave nothing for a run of somebody without write access, who is not told."""


class IsolationError(StepflowError):
    """The sandbox cannot start, or fails to protect what it must protect."""


class BaseCheckError(StepflowError):
    """A check fails before the run begins, and the run was configured not to begin in that case."""


class RunCancelled(BaseException):
    """A termination signal reached the run (flow.md §10).

    Derives from BaseException so that only `run/` catches it.
    """
