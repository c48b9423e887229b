"""The completion loop's one pass: hold a closing against the rules of the boundary, run its validators, then end the
run or send the flow on with a retry prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from stepflow.domain.decision import Done, Failed, NotDone, Stop, Unproven
from stepflow.domain.event import CompletionJudged
from stepflow.domain.ladder import ClimbCause
from stepflow.domain.words import FailureAction, Outcome
from stepflow.engine.cache_renewal import keep_opening
from stepflow.engine.completion.boundary_rules import judge_differing, judge_violations, rules_entry
from stepflow.engine.completion.judge import judge_completion
from stepflow.engine.context import COMPLETION_LOOP, FlowStopped
from stepflow.engine.ladder import find_change
from stepflow.engine.prompt.retry import render_retry
from stepflow.engine.router import repeat_move

if TYPE_CHECKING:
    from collections.abc import Sequence

    from stepflow.domain.decision import FlowResult, Verdict, Violation
    from stepflow.domain.definition import Step, ValidationEntry
    from stepflow.domain.json import JsonObject
    from stepflow.engine.attempt import Answered
    from stepflow.engine.context import FlowContext


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
                Outcome.COMPLETED, reason, answer, where=COMPLETION_LOOP, validated=validated, closing=closing
            )
        case Failed():
            raise FlowStopped(Outcome.VALIDATION_FAILED, verdict.reason, answer=answer, where=COMPLETION_LOOP)
        case Unproven():
            refusal = f"refused: {verdict.reason}"
            raise FlowStopped(Outcome.REFUSED, refusal, answer=answer, where=COMPLETION_LOOP)
        case NotDone():
            _send_back(context, step, entry, attempt, verdict)
            return None
        case _:
            assert_never(verdict)


def _judge(context: FlowContext, step: Step, answer: JsonObject | None) -> tuple[ValidationEntry, Verdict]:
    """What a closing comes to, by the rules of the boundary and by its validators, and the entry that decided."""
    rules, by_rules = context.ports.boundary_rules, rules_entry(step)

    def broken(violations: Sequence[Violation]) -> NotDone | Unproven | None:
        failures = context.state.attempts.get(by_rules.id, 0)
        iteration = context.state.iteration
        return judge_violations(by_rules, violations, iteration=iteration, failures=failures, record=context.record)

    if rules and (red := broken(rules.judge_request(step, answer))):
        return by_rules, red
    entry = step.validation
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
        violations = (*judge_differing(closing), *(rules.judge_checked(closing) if rules else ()))
        if violations and (red := broken(violations)):
            return by_rules, red
    return entry, verdict


def _find_next(context: FlowContext, step: Step, attempt: Answered) -> str | None:
    """The step that a red validator sends the flow back to; None where it ends the run, or another model goes on."""
    entry = step.validation
    failures = context.state.attempts.get(entry.id, 0) if entry else 0
    if entry is None or entry.action is not FailureAction.RETRY or failures + 1 >= entry.max_attempts:
        return None
    target = repeat_move(step, attempt.decision.handoff, context.agent.steps)
    if isinstance(target, Stop) or find_change(context, context.agent.steps[target.step_id], ClimbCause.VALIDATOR, ""):
        return None
    return target.step_id


def _send_back(context: FlowContext, step: Step, entry: ValidationEntry, attempt: Answered, verdict: NotDone) -> None:
    target = repeat_move(step, attempt.decision.handoff, context.agent.steps)
    if isinstance(target, Stop):
        raise FlowStopped(target.outcome, target.reason, answer=attempt.answer, where=COMPLETION_LOOP)
    retry = render_retry(entry, verdict.failure, step.id, context.variables(step))
    reason = f"the check {verdict.failure.validator} is red"
    if change := find_change(context, context.agent.steps[target.step_id], ClimbCause.VALIDATOR, reason):
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
