"""The check that the engine brings: whether a closing breaks a rule of what may be written to GitHub.

It runs before the validators, since it takes a moment where they may take minutes, and what breaks a rule has to be
committed anew and checked again anyway. It counts its attempts by itself.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.checkout import named
from stepflow.domain.decision import NotDone, Unproven, ValidatorFailure, Violation
from stepflow.domain.definition import BOUNDARY_RULES, ValidationEntry
from stepflow.domain.event import ValidatorRan
from stepflow.domain.figures import count
from stepflow.domain.words import FailureAction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from stepflow.domain.checkout import Closing
    from stepflow.domain.definition import Step


#: What the boundary only leaves out is worth one question: an agent that insists may be right.
ATTEMPTS_OF_LEFT_OUT = 2


def rules_entry(step: Step) -> ValidationEntry:
    """The check as a validation entry: what the step's own says of failures holds for it too. Only `skip` does not,
    for the boundary lets nothing pass."""
    entry = ValidationEntry(id=BOUNDARY_RULES.name, conditions=())
    own = step.validation
    if own is None:
        return entry
    action = FailureAction.RETRY if own.action is FailureAction.SKIP else own.action
    return replace(entry, action=action, max_attempts=own.max_attempts)


def judge_differing(closing: Closing) -> tuple[Violation, ...]:
    """Whether the validators saw tracked files that differ from the commit: then they do not speak for it."""
    if not closing.changed:
        return ()
    return (
        Violation(
            message="the checks saw files that differ from the commit that would be pushed: " + named(closing.changed),
            advice="Commit these changes, or take them back with `git restore`.",
        ),
    )


def judge_violations(
    entry: ValidationEntry,
    violations: Sequence[Violation],
    *,
    iteration: int,
    failures: int,
    record: Callable[[ValidatorRan], None],
) -> NotDone | Unproven | None:
    """What these violations lead to; None when the closing goes on. `failures` are earlier attempts. Only where there
    were any is it worth a line that nothing is broken any more."""
    if not violations and not failures:
        return None
    attempt = failures + 1 if violations else failures
    refuses = any(each.refuses for each in violations)
    most = entry.max_attempts if refuses else min(entry.max_attempts, ATTEMPTS_OF_LEFT_OUT)
    action, text = _action(entry.action, attempt, most, refuses=refuses) if violations else None, _text(violations)
    record(
        ValidatorRan(
            iteration=iteration,
            entry=entry.id,
            name=BOUNDARY_RULES.name,
            passed=not violations,
            exit_code=1 if violations else 0,
            pattern=BOUNDARY_RULES.pattern.name,
            attempt=attempt,
            max_attempts=most,
            action=action,
            recoverable=True,
            seconds=0.0,
            output_tail=text,
        )
    )
    match action:
        case FailureAction.RETRY:
            return NotDone(failure=_failure(text, attempt, most))
        case FailureAction.ABORT:
            return _refused(violations, attempt)
        case _:
            return None


def _action(on_failure: FailureAction, attempt: int, most: int, *, refuses: bool) -> FailureAction:
    if on_failure is FailureAction.RETRY and attempt < most:
        return FailureAction.RETRY
    return FailureAction.ABORT if refuses else FailureAction.SKIP


def _text(violations: Sequence[Violation]) -> str:
    advice = dict.fromkeys(each.advice for each in violations)
    return "\n".join((*(f"- {each.message}" for each in violations), *(f"\n{each}" for each in advice)))


def _refused(violations: Sequence[Violation], attempt: int) -> Unproven:
    """The end of a run by the first rule that the boundary would not let pass; the others are in its report."""
    first = next(each for each in violations if each.refuses)
    asked = f" The agent was asked {count(attempt - 1, 'time')} to correct it." if attempt > 1 else ""
    return Unproven(reason=f"{first.message.rstrip('.')}.{asked} {first.hint}".strip())


def _failure(text: str, attempt: int, max_attempts: int) -> ValidatorFailure:
    return ValidatorFailure(
        validator=BOUNDARY_RULES.name,
        pattern=BOUNDARY_RULES.pattern.name,
        description=BOUNDARY_RULES.pattern.description,
        error=text,
        exit_code=1,
        stdout=text,
        stderr="",
        attempt=attempt,
        max_attempts=max_attempts,
    )
