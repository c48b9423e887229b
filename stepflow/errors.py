"""Errors that end a run before or outside the flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class StepflowError(Exception):
    """The run cannot continue. `message` says what happened and where; `hint` says what the workflow author should
    change; `code` is the rule that was broken, if any."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "", code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InputError(StepflowError):
    """An action input, a flag, an event file or a run argument is wrong: exit 2."""

    exit_code = 2


class DefinitionError(StepflowError):
    """An agent definition is invalid: exit 2. Holds *all* problems found, rendered one per line."""

    exit_code = 2

    def __init__(self, message: str, *, problems: Sequence[object] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(str(problem) for problem in self.problems)))


class ModelError(StepflowError):
    """The model cannot be called at all (no key, bad address). A failed call is a `ModelFault` value instead."""


class BoundaryError(StepflowError):
    """A write to GitHub failed, or its result could not be confirmed."""


class IsolationError(StepflowError):
    """The sandbox cannot start, or fails to protect what it must protect."""


class BaseCheckError(StepflowError):
    """A check fails before the run begins, and the run was configured not to begin in that case."""


class RunCancelled(BaseException):
    """A termination signal reached the run (flow.md §10).

    Derives from BaseException so that only `run/` catches it.
    """
