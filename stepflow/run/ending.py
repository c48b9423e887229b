"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass

from stepflow.boundary.settings import Refused
from stepflow.domain.problem import Problem, Severity
from stepflow.domain.words import Outcome
from stepflow.errors import (
    BaseCheckError,
    BoundaryError,
    DefinitionError,
    InputError,
    IsolationError,
    ModelError,
    StepflowError,
)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """An outcome and its complete reason, which says where the run stopped (flow.md §11). `unreported`: the run
    broke off before it could tell the issue. `code` is that of the broken rule, if there is one."""

    outcome: Outcome
    reason: str
    code: str | None = None
    unreported: bool = False


#: What an error comes to; one that is of none of these kinds is a bug of ours.
OUTCOMES: tuple[tuple[type[StepflowError], Outcome], ...] = (
    (ModelError, Outcome.MODEL_FAILED),
    (IsolationError, Outcome.REFUSED),
    (Refused, Outcome.REFUSED),
    (BaseCheckError, Outcome.BASE_FAILED),
    (BoundaryError, Outcome.BOUNDARY_FAILED),
    (InputError, Outcome.MISCONFIGURED),
    (DefinitionError, Outcome.INVALID_DEFINITION),
)


def outcome_of(error: StepflowError) -> Outcome:
    """What an error that people can act on comes to, before a run or in it (house.md "Errors")."""
    if isinstance(error, InputError) and error.code:
        # The code is that of a rule about definitions.
        return Outcome.INVALID_DEFINITION
    return next((outcome for kind, outcome in OUTCOMES if isinstance(error, kind)), Outcome.INTERNAL_ERROR)


def code_of(error: StepflowError) -> str | None:
    """The code of the rule that an error is about: its own, or that of the first error among its problems."""
    problems = error.problems if isinstance(error, DefinitionError) else ()
    errors = (p.code for p in problems if isinstance(p, Problem) and p.severity is Severity.ERROR)
    return error.code or next(errors, None)
