"""How a run ended."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

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
    RunCancelled,
    StepflowError,
)
from stepflow.report.collect import ReportFacts, collect_report
from stepflow.report.wording import BUG

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.effect import Receipt
    from stepflow.domain.report import RunReport


@dataclass(frozen=True, kw_only=True)
class Ending:
    """An outcome and its complete reason, which says where the run stopped (flow.md §11). `unreported`: the run
    broke off before it could tell the issue. `code` is that of the broken rule, if there is one. `confirmed` are the
    receipts that GitHub itself stands behind, whatever part of the run wrote them."""

    outcome: Outcome
    reason: str
    code: str | None = None
    unreported: bool = False
    confirmed: tuple[Receipt, ...] = ()


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


def report_unbegun(
    outcome: Outcome,
    reason: str,
    *,
    agent: str = "",
    issue: int | None = None,
    problems: tuple[Problem, ...] = (),
    code: str | None = None,
    folders: tuple[str, str] = ("", ""),
) -> RunReport:
    """The report where no run began. `folders` are where its files are, inside the container and outside."""
    facts = ReportFacts(
        agent=agent,
        issue=issue,
        outcome=outcome,
        reason=f"Before the run: {reason}",
        problems=problems,
        code=code,
        run_folder=folders[0],
        host_run_folder=folders[1],
    )
    return replace(collect_report((), facts=facts), success=outcome is Outcome.COMPLETED)


def describe_error(error: BaseException) -> str:
    """What ended a run or a command from outside its logic, in words."""
    match error:
        case RunCancelled() | KeyboardInterrupt():
            return str(error) or "interrupted"
        case DefinitionError():
            # Its problems have fields of their own.
            return error.message
        case StepflowError():
            return str(error)
        case _:
            return f"{BUG}: {type(error).__name__}: {error}"


def report_error(error: BaseException, *, agent: str = "", issue: int | None = None) -> RunReport:
    """The report of a run that this error ended before it began."""
    reason = describe_error(error)
    match error:
        case RunCancelled() | KeyboardInterrupt():
            return report_unbegun(Outcome.CANCELLED, reason, agent=agent, issue=issue)
        case DefinitionError():
            # `errors` stands below `domain` on the map and cannot name the type of its problems.
            problems = cast("tuple[Problem, ...]", error.problems)
            return report_unbegun(Outcome.INVALID_DEFINITION, reason, agent=agent, issue=issue, problems=problems)
        case StepflowError():
            return report_unbegun(outcome_of(error), reason, agent=agent, issue=issue, code=error.code)
        case _:
            return report_unbegun(Outcome.INTERNAL_ERROR, reason, agent=agent, issue=issue)


def without_names(report: RunReport, receipts: Sequence[Receipt]) -> RunReport:
    """The report, in which these receipts name no branch, commit or pull request."""
    return replace(
        report,
        effects=tuple(
            replace(receipt, url="", number=None, branch="", commit="") if receipt in receipts else receipt
            for receipt in report.effects
        ),
    )
