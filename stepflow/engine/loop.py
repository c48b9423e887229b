"""The two loops. The Flow loop attempts a step (prompt, model, gate), chooses the move (the router, a table), and at a
closing calls the Completion loop: check the closing against the boundary's rules, run its validators in order, then end
the run or send the flow back with a retry prompt.

The rules come first: they take a moment where validators may take minutes, and correcting a violation takes new
commits, which must be checked again anyway. Their attempts are counted separately.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from stepflow.domain.agent.agent_settings import ClimbCause
from stepflow.domain.agent.definition import AgentDefinition, Branch, Step, Target, Transition, ValidationEntry
from stepflow.domain.checkout import TreeState
from stepflow.domain.end import End
from stepflow.domain.event import CompletionJudged, Event, FlowEnded, Routed, ValidatorRan
from stepflow.domain.flow import (
    Close,
    Decided,
    Done,
    GoTo,
    Move,
    NotDone,
    RunState,
    ValidatorFailure,
    Verdict,
    Violation,
    find_continuation,
)
from stepflow.domain.json import JsonObject, JsonValue, as_text, compact
from stepflow.domain.run import RunFacts
from stepflow.domain.text import count, name_some
from stepflow.domain.words import INTENTS_OF_KIND, FailureAction, Intent, Outcome, Stage, StepKind
from stepflow.engine.attempt import attempt_step
from stepflow.engine.cache_renewal import keep_opening
from stepflow.engine.context import Answered, FlowContext, FlowStopped, demand_approval
from stepflow.engine.judge import judge_completion
from stepflow.engine.prompt.render import render_retry
from stepflow.engine.resumption import WrittenEvents
from stepflow.ports import Ports

#: Attempts for what the boundary would merely leave out: the agent is asked once, and if it insists it may be right.
ATTEMPTS_OF_LEFT_OUT = 2

#: A check that the engine adds to every agent: whether the boundary would refuse the closing. It runs before the
#: validators.
BOUNDARY_RULES = "boundary-rules"
BREAKS_BOUNDARY_RULES = "What this closing asks for breaks a rule of what may be written to GitHub."


def run_flow(
    agent: AgentDefinition, facts: RunFacts, ports: Ports, state: RunState, iteration: Iterable[Event] = ()
) -> FlowEnded:
    """Run steps until the run has an outcome. `state` is the fold of the events so far, including `run_started`, but
    without those of an `iteration` that a stopped process has begun."""
    context = FlowContext(agent=agent, facts=facts, ports=ports, state=state, written=WrittenEvents(iteration))
    try:
        while True:
            step = agent.steps[context.state.step_id]
            context.check_limits(next_step=step.id)
            demand_approval(context)
            attempt = attempt_step(context, step)
            if attempt is None:
                continue
            move = choose_move(step, attempt.decision, agent.steps)
            record_move(context, step, attempt.decision, move)
            match move:
                case GoTo():
                    continue
                case End():
                    raise FlowStopped(move, answer=attempt.answer)
                case Close():
                    back = choose_repeat(step, attempt.decision.handoff, agent.steps)
                    if result := complete(context, step, attempt, back):
                        return result
                case _:
                    assert_never(move)
    except FlowStopped as stopped:
        return context.end(stopped.end, stopped.answer)


def record_move(context: FlowContext, step: Step, decision: Decided, move: Move) -> None:
    """Record the router's decision."""
    if step.initial and decision.intent == "handoff":
        context.note("warning", f'[StepFlow] handoff from initial step "{step.id}"')
    target, by_prefix = (move.step_id, move.by_prefix) if isinstance(move, GoTo) else (None, False)
    context.record(
        Routed(source=step.id, to=target, transition=decision.word, reason=decision.reason, by_prefix=by_prefix)
    )


def choose_move(  # noqa: PLR0911 - one return per row of the table
    step: Step, decision: Decided, steps: Mapping[str, Step]
) -> Move:
    """Apply the router's table; the first match wins."""
    intent = decision.intent
    if intent is Intent.ABORT:
        return End(outcome=Outcome.ABORTED, reason=decision.reason)
    if not _may_answer(step, intent):
        return _fail_routing(f'step "{step.id}" is a {step.kind} step and may not answer {intent}')
    match intent:
        case Intent.CLOSING if step.kind is not StepKind.CLOSURE:
            return End(outcome=Outcome.COMPLETED, reason=decision.reason)
        case Intent.CLOSING:
            return Close()
        case Intent.NEXT | Intent.REPEAT | Intent.JUMP if decision.target is not None:
            return _go_to(step, decision.target, steps)
        case Intent.REPEAT:
            return choose_repeat(step, decision.handoff, steps)
        case Intent.NEXT if Intent.NEXT not in step.edges:
            if target := find_continuation(step.id, steps):
                return GoTo(step_id=target, by_prefix=True)
            return _fail_routing(f'step "{step.id}" has no transition for next')
        case Intent.NEXT | Intent.JUMP | Intent.HANDOFF | Intent.ESCALATE:
            return _follow(step, intent, decision.handoff, steps)
        case _:
            assert_never(intent)


def choose_repeat(step: Step, handoff: Mapping[str, JsonValue], steps: Mapping[str, Step]) -> GoTo | End:
    """Return where `repeat` leads: the step's `repeat` target, or the step itself. Also for repeats that the engine
    makes."""
    transition = step.edges.get(Intent.REPEAT)
    if transition is None or (isinstance(transition, Target) and transition.step_id is None):
        return GoTo(step_id=step.id)
    return _follow(step, Intent.REPEAT, handoff, steps)


def _may_answer(step: Step, intent: Intent) -> bool:
    """Return whether the step may answer this intent: by the rules of its check, by its verdict, or by its kind.

    Only the verdict of an ungated registry may end the flow on a step that is not a closure; nothing is closed then.
    """
    if step.check is not None:
        return intent in {Intent.REPEAT, *(rule.intent for rule in step.check.rules)}
    if step.gate is None:
        return intent in _OF_VERDICT
    return step.kind is None or intent in INTENTS_OF_KIND[step.kind]


#: The intents that a verdict can produce.
_OF_VERDICT = frozenset({Intent.NEXT, Intent.REPEAT, Intent.CLOSING})


def _follow(step: Step, intent: Intent, handoff: Mapping[str, JsonValue], steps: Mapping[str, Step]) -> GoTo | End:
    transition: Transition | None = step.edges.get(intent)
    match transition:
        case Target(step_id=str(target)):
            return _go_to(step, target, steps)
        case Branch():
            return _follow_branch(step, intent, transition, handoff, steps)
        case None | Target():
            return _fail_routing(f'step "{step.id}" has no transition for {intent}')
        case _:
            assert_never(transition)


def _follow_branch(
    step: Step, intent: Intent, transition: Branch, handoff: Mapping[str, JsonValue], steps: Mapping[str, Step]
) -> GoTo | End:
    value, target = handoff.get(transition.condition), transition.default
    if isinstance(value, str | bool | int | float):
        target = transition.targets.get(as_text(value), target)
    if target is None:
        found = "missing" if value is None else compact(value)[:120]
        source = f'the {intent} transition of step "{step.id}"'
        return _fail_routing(f"{source} has no target for {transition.condition} = {found} and no default")
    return _go_to(step, target, steps)


def _go_to(step: Step, target: str, steps: Mapping[str, Step]) -> GoTo | End:
    if target not in steps:
        return _fail_routing(f'step "{step.id}" asks for step "{target[:120]}", which is not a flow step of this agent')
    return GoTo(step_id=target)


def _fail_routing(reason: str) -> End:
    return End(outcome=Outcome.ROUTING_FAILED, reason=reason)


def complete(context: FlowContext, step: Step, attempt: Answered, back: GoTo | End) -> FlowEnded | None:
    """Return the result of a completed run; None if the flow continues with a retry prompt, at the step that `back`
    leads to."""
    answer, reason = attempt.answer, attempt.decision.reason
    with keep_opening(context, _find_next(context, step.validation, back)):
        entry, verdict = _judge_closing(context, step, answer)
    match verdict:
        case Done(validated=validated, closing=closing):
            if step.validation and not context.facts.reviewed:
                context.record(CompletionJudged(entry=entry.id, done=True, validated=validated, step_id=step.id))
            end = End(outcome=Outcome.COMPLETED, stage=Stage.COMPLETION, reason=reason)
            return context.end(end, answer, validated=validated, closing=closing)
        case End():
            raise FlowStopped(verdict, answer=answer)
        case NotDone() if isinstance(back, End):
            raise FlowStopped(replace(back, stage=Stage.COMPLETION), answer=answer)
        case NotDone(failure=failure):
            _send_back(context, step, entry, failure, back.step_id)
            return None
        case _:
            assert_never(verdict)


def _judge_closing(context: FlowContext, step: Step, answer: JsonObject | None) -> tuple[ValidationEntry, Verdict]:
    """Judge a closing by the boundary's rules and its validators. Returns the entry that decided, and its verdict."""
    rules, rules_entry, entry = context.ports.boundary_rules, _build_rules_entry(step), step.validation
    if rules and (rejection := _judge_violations(context, rules_entry, rules.judge_request(step, answer))):
        return rules_entry, rejection
    if entry and context.facts.reviewed:
        # Nothing of a review's workspace leaves it: its checks are for the suggestions, and a proof is for the report.
        entry = replace(entry, conditions=tuple(each for each in entry.conditions if each.validator.proof))
    if entry is None or not entry.conditions:
        return entry or rules_entry, Done(validated=False)
    verdict = judge_completion(
        entry,
        iteration=context.state.iteration,
        failures=context.state.attempts.get(entry.id, 0),
        root=context.facts.root,
        checks=context.ports.checks,
        record=context.record,
    )
    if isinstance(verdict, Done) and verdict.closing:
        closing = verdict.closing
        violations = (*_find_differing(closing), *(rules.judge_checked(closing) if rules else ()))
        if violations and (rejection := _judge_violations(context, rules_entry, violations)):
            return rules_entry, rejection
    return entry, verdict


def _build_rules_entry(step: Step) -> ValidationEntry:
    """Return the boundary's rules as a validation entry, with the failure settings of the step's own entry. `skip`
    becomes `retry`, since the boundary lets nothing pass."""
    entry = ValidationEntry(id=BOUNDARY_RULES, conditions=())
    step_entry = step.validation
    if step_entry is None:
        return entry
    action = FailureAction.RETRY if step_entry.action is FailureAction.SKIP else step_entry.action
    return replace(entry, action=action, max_attempts=step_entry.max_attempts)


def _find_differing(closing: TreeState) -> tuple[Violation, ...]:
    """Return a violation if the validators saw tracked files that differ from the commit."""
    if not closing.changed:
        return ()
    return (
        Violation(
            message="the checks saw files that differ from the commit that would be pushed: "
            + name_some(closing.changed),
            advice="Commit these changes, or undo them with `git restore`.",
        ),
    )


def _judge_violations(
    context: FlowContext, entry: ValidationEntry, violations: Sequence[Violation]
) -> NotDone | End | None:
    """Return the verdict on these violations; None if the closing continues. That the rules are kept is recorded only
    after an earlier violation."""
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
            name=BOUNDARY_RULES,
            passed=not violations,
            exit_code=1 if violations else 0,
            pattern=BOUNDARY_RULES,
            attempt=attempt,
            max_attempts=most,
            action=action,
            recoverable=True,
            seconds=0.0,
            output_tail=text,
        )
    )
    if action is FailureAction.RETRY:
        return NotDone(
            failure=ValidatorFailure(
                validator=BOUNDARY_RULES,
                pattern=BOUNDARY_RULES,
                description=BREAKS_BOUNDARY_RULES,
                error=text,
                exit_code=1,
                stdout=text,
                stderr="",
                attempt=attempt,
                max_attempts=most,
            )
        )
    if refusing is None:
        return None
    # The first violation that the boundary would refuse ends the run; the report has the others.
    asked = f" The agent was asked {count(attempt - 1, 'time')} to correct it." if attempt > 1 else ""
    reason = f"{refusing.message.rstrip('.')}.{asked} {refusing.hint}".strip()
    return End(outcome=Outcome.REFUSED, stage=Stage.COMPLETION, reason=reason)


def _find_next(context: FlowContext, entry: ValidationEntry | None, back: GoTo | End) -> str | None:
    """Return the step that a failed validator sends the flow back to; None if it ends the run or another model takes
    over."""
    failures = context.state.attempts.get(entry.id, 0) if entry else 0
    if entry is None or entry.action is not FailureAction.RETRY or failures + 1 >= entry.max_attempts:
        return None
    if isinstance(back, End) or context.find_change(context.agent.steps[back.step_id], ClimbCause.VALIDATOR, ""):
        return None
    return back.step_id


def _send_back(
    context: FlowContext, step: Step, entry: ValidationEntry, failure: ValidatorFailure, target: str
) -> None:
    """Continue the flow at the step `target`, with a retry prompt."""
    retry = render_retry(entry, failure, step.id, context.variables(step))
    reason = f"the check {failure.validator} failed"
    if change := context.find_change(context.agent.steps[target], ClimbCause.VALIDATOR, reason):
        context.record(change)
    context.note("info", f'[Prompt] step "{target}": retry text from {retry.source}')
    context.record(
        CompletionJudged(
            entry=entry.id,
            done=False,
            validated=False,
            step_id=target,
            retry_prompt=retry.text,
            retry_source=retry.source,
        )
    )
