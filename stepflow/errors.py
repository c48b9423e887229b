"""Errors that end a run before or outside the flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar


class StepflowError(Exception):
    """A run cannot go on. `message` says what happened and where, `hint` what the workflow author should change;
    `code` is that of the broken rule, if there is one."""

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
    """An agent definition is not sound. Holds *all* problems found, rendered one per line: exit 2."""

    exit_code = 2

    def __init__(self, message: str, *, problems: Sequence[object] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.problems = tuple(problems)

    def __str__(self) -> str:
        return "\n".join((super().__str__(), *(str(problem) for problem in self.problems)))


class ModelError(StepflowError):
    """The model cannot be asked at all (no key, bad address). A failed call is a `ModelFault` value instead."""


class BoundaryError(StepflowError):
    """A write to GitHub failed, or its result could not be confirmed."""


class IsolationError(StepflowError):
    """The toolbox cannot be started, or does not keep what it must keep."""


class BaseCheckError(StepflowError):
    """A check is red before the run began, and the run was asked not to begin then."""


class RunCancelled(BaseException):
    """A termination signal reached the run (flow.md §10).

    A BaseException, so that nobody but `run/` catches it.
    """
