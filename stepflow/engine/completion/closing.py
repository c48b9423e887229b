"""The completion loop's one pass: hold a closing against the rules of the boundary, run its validators in order, then
end the run or send the flow on with a retry prompt.

The rules come before the validators, since they take a moment where validators may take minutes, and what breaks a rule
has to be committed anew and checked again anyway. They count their attempts by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import assert_never

from stepflow.domain.checkout import Closing
from stepflow.domain.decision import (
    Done,
    Failed,
    FlowResult,
    NotDone,
    Stop,
    Unproven,
    ValidatorFailure,
    Verdict,
    Violation,
)
from stepflow.domain.definition import (
    BOUNDARY_RULES,
    Step,
    ValidationEntry,
)
from stepflow.domain.event import CompletionJudged, ValidatorRan
from stepflow.domain.json import JsonObject
from stepflow.domain.ladder import ClimbCause
from stepflow.domain.text import count, name_some
from stepflow.domain.words import FailureAction, Outcome, Stage
from stepflow.engine.attempt import Answered
from stepflow.engine.cache_renewal import keep_opening
from stepflow.engine.completion.judge import judge_completion
from stepflow.engine.context import FlowContext, FlowStopped
from stepflow.engine.prompt.render import render_retry
from stepflow.engine.router import repeat_move

#: What the boundary only leaves out is worth one question: an agent that insists may be right.
ATTEMPTS_OF_LEFT_OUT = 2


def complete(context: FlowContext, step: Step, attempt: Answered) -> FlowResult | None:
    """The result of a completed run; None when the flow goes on with a retry prompt."""
    answer, reason = attempt.answer, attempt.decision.reason
    with keep_opening(context, _find_next(context, step, attempt)):
        entry, verdict = _judge(context, step, answer)
    match verdict:
        case Done(validated=validated, closing=closing):
            if step.validation:
                context.record(CompletionJudged(entry=entry.id, done=True, validated=validated, step_id=step.id))
            return context.end(
                Outcome.COMPLETED, reason, answer, where=Stage.COMPLETION, validated=validated, closing=closing
            )
        case Failed():
            raise FlowStopped(Outcome.VALIDATION_FAILED, verdict.reason, answer=answer, where=Stage.COMPLETION)
        case Unproven():
            raise FlowStopped(Outcome.REFUSED, verdict.reason, answer=answer, where=Stage.COMPLETION)
        case NotDone():
            _send_back(context, step, entry, attempt, verdict)
            return None
        case _:
            assert_never(verdict)


def _judge(context: FlowContext, step: Step, answer: JsonObject | None) -> tuple[ValidationEntry, Verdict]:
    """What a closing comes to, by the rules of the boundary and by its validators, and the entry that decided."""
    rules, by_rules, entry = context.ports.boundary_rules, _rules_entry(step), step.validation
    if rules and (red := _judge_violations(context, by_rules, rules.judge_request(step, answer))):
        return by_rules, red
    if entry is None:
        return by_rules, Done(validated=False)
    verdict = judge_completion(
        entry,
        iteration=context.state.iteration,
        failures=context.state.attempts.get(entry.id, 0),
        root=context.facts.root,
        commands=context.ports.commands,
        guards=context.ports.guards,
        record=context.record,
    )
    if isinstance(verdict, Done) and verdict.closing:
        closing = verdict.closing
        violations = (*_judge_differing(closing), *(rules.judge_checked(closing) if rules else ()))
        if violations and (red := _judge_violations(context, by_rules, violations)):
            return by_rules, red
    return entry, verdict


def _rules_entry(step: Step) -> ValidationEntry:
    """The rules of the boundary as a validation entry: what the step's own says of failures holds for them too. Only
    `skip` does not, for the boundary lets nothing pass."""
    entry = ValidationEntry(id=BOUNDARY_RULES.name, conditions=())
    own = step.validation
    if own is None:
        return entry
    action = FailureAction.RETRY if own.action is FailureAction.SKIP else own.action
    return replace(entry, action=action, max_attempts=own.max_attempts)


def _judge_differing(closing: Closing) -> tuple[Violation, ...]:
    """Whether the validators saw tracked files that differ from the commit: then they do not speak for it."""
    if not closing.changed:
        return ()
    return (
        Violation(
            message="the checks saw files that differ from the commit that would be pushed: "
            + name_some(closing.changed),
            advice="Commit these changes, or take them back with `git restore`.",
        ),
    )


def _judge_violations(
    context: FlowContext, entry: ValidationEntry, violations: Sequence[Violation]
) -> NotDone | Unproven | None:
    """What these violations lead to; None when the closing goes on. Only where there were any before is it worth a line
    that nothing is broken any more."""
    failures = context.state.attempts.get(entry.id, 0)
    if not violations and not failures:
        return None
    attempt = failures + 1 if violations else failures
    refusing = next((each for each in violations if each.refuses), None)
    most = entry.max_attempts if refusing else min(entry.max_attempts, ATTEMPTS_OF_LEFT_OUT)
    advice = dict.fromkeys(each.advice for each in violations)
    text = "\n".join((*(f"- {each.message}" for each in violations), *(f"\n{each}" for each in advice)))
    action = None
    if violations:
        may_retry = entry.action is FailureAction.RETRY and attempt < most
        action = FailureAction.RETRY if may_retry else FailureAction.ABORT if refusing else FailureAction.SKIP
    context.record(
        ValidatorRan(
            iteration=context.state.iteration,
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
    if action is FailureAction.RETRY:
        return NotDone(failure=_failure(text, attempt, most))
    if refusing is None:
        return None
    # The run ends by the first rule that the boundary would not let pass; the others are in its report.
    asked = f" The agent was asked {count(attempt - 1, 'time')} to correct it." if attempt > 1 else ""
    return Unproven(reason=f"{refusing.message.rstrip('.')}.{asked} {refusing.hint}".strip())


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


def _find_next(context: FlowContext, step: Step, attempt: Answered) -> str | None:
    """The step that a red validator sends the flow back to; None where it ends the run, or another model goes on."""
    entry = step.validation
    failures = context.state.attempts.get(entry.id, 0) if entry else 0
    if entry is None or entry.action is not FailureAction.RETRY or failures + 1 >= entry.max_attempts:
        return None
    target = repeat_move(step, attempt.decision.handoff, context.agent.steps)
    if isinstance(target, Stop) or context.find_change(context.agent.steps[target.step_id], ClimbCause.VALIDATOR, ""):
        return None
    return target.step_id


def _send_back(context: FlowContext, step: Step, entry: ValidationEntry, attempt: Answered, verdict: NotDone) -> None:
    target = repeat_move(step, attempt.decision.handoff, context.agent.steps)
    if isinstance(target, Stop):
        raise FlowStopped(target.outcome, target.reason, answer=attempt.answer, where=Stage.COMPLETION)
    retry = render_retry(entry, verdict.failure, step.id, context.variables(step))
    reason = f"the check {verdict.failure.validator} is red"
    if change := context.find_change(context.agent.steps[target.step_id], ClimbCause.VALIDATOR, reason):
        context.record(change)
    context.note("info", f'[Prompt] step "{target.step_id}": retry text from {retry.source}')
    context.record(
        CompletionJudged(
            entry=entry.id,
            done=False,
            validated=False,
            step_id=target.step_id,
            retry_prompt=retry.text,
            retry_source=retry.source,
        )
    )
