"""The completion loop's one pass: run the validators of a closing, then end the run or send the flow on with a retry
prompt (flow.md §8).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from stepflow.domain.decision import Done, Failed, NotDone, Stop, Unproven
from stepflow.domain.event import CompletionJudged
from stepflow.domain.words import Outcome
from stepflow.engine.completion.judge import judge_completion
from stepflow.engine.context import COMPLETION_LOOP, FlowStopped
from stepflow.engine.prompt.retry import render_retry
from stepflow.engine.router import repeat_move

if TYPE_CHECKING:
    from stepflow.domain.decision import FlowResult
    from stepflow.domain.definition import Step, ValidationEntry
    from stepflow.engine.attempt import Answered
    from stepflow.engine.context import FlowContext


def complete(context: FlowContext, step: Step, attempt: Answered) -> FlowResult | None:
    """The result of a completed run; None when the flow goes on with a retry prompt."""
    answer, reason, entry = attempt.answer, attempt.decision.reason, step.validation
    if entry is None:
        return context.end(Outcome.COMPLETED, reason, answer, where=COMPLETION_LOOP)
    verdict = judge_completion(
        entry,
        iteration=context.state.iteration,
        failures=context.state.attempts.get(entry.id, 0),
        root=context.facts.root,
        commands=context.ports.commands,
        guards=context.ports.guards,
        record=context.record,
    )
    match verdict:
        case Done(validated=validated, closing=closing):
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


def _send_back(context: FlowContext, step: Step, entry: ValidationEntry, attempt: Answered, verdict: NotDone) -> None:
    target = repeat_move(step, attempt.decision.handoff, context.agent.steps)
    if isinstance(target, Stop):
        raise FlowStopped(target.outcome, target.reason, answer=attempt.answer, where=COMPLETION_LOOP)
    retry = render_retry(entry, verdict.failure, step.id, context.variables(step))
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
