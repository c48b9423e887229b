"""The flow loop: attempt the step (prompt, model, gate), choose the move (router), complete a closing. The router is a
table: it chooses where a decision leads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

from stepflow.domain.agent.definition import AgentDefinition, Branch, Step, Target, Transition
from stepflow.domain.event import Routed
from stepflow.domain.flow import Close, Decided, FlowResult, GoTo, Move, RunState, Stop, find_continuation
from stepflow.domain.json import JsonValue, as_text, compact
from stepflow.domain.run import RunFacts
from stepflow.domain.words import INTENTS_OF_KIND, Intent, Outcome, StepKind
from stepflow.engine.attempt import attempt_step
from stepflow.engine.closing import complete
from stepflow.engine.context import FlowContext, FlowStopped, demand_approval
from stepflow.ports import Ports


def run_flow(agent: AgentDefinition, facts: RunFacts, ports: Ports, state: RunState) -> FlowResult:
    """Run steps until the run has an outcome. `state` is the fold of the events so far, including `run_started`."""
    context = FlowContext(agent=agent, facts=facts, ports=ports, state=state)
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
                case Stop():
                    raise FlowStopped(move.outcome, move.reason, answer=attempt.answer)
                case Close():
                    back = choose_repeat(step, attempt.decision.handoff, agent.steps)
                    if result := complete(context, step, attempt, back):
                        return result
                case _:
                    assert_never(move)
    except FlowStopped as end:
        return context.end(end.outcome, end.reason, end.answer, where=end.where)


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
        return Stop(outcome=Outcome.ABORTED, reason=decision.reason)
    if not _may_answer(step, intent):
        return _stop_routing(f'step "{step.id}" is a {step.kind} step and may not answer {intent}')
    match intent:
        case Intent.CLOSING if step.kind is not StepKind.CLOSURE:
            return Stop(outcome=Outcome.COMPLETED, reason=decision.reason)
        case Intent.CLOSING:
            return Close()
        case Intent.NEXT | Intent.REPEAT | Intent.JUMP if decision.target is not None:
            return _go_to(step, decision.target, steps)
        case Intent.REPEAT:
            return choose_repeat(step, decision.handoff, steps)
        case Intent.NEXT if Intent.NEXT not in step.edges:
            if target := find_continuation(step.id, steps):
                return GoTo(step_id=target, by_prefix=True)
            return _stop_routing(f'step "{step.id}" has no transition for next')
        case Intent.NEXT | Intent.JUMP | Intent.HANDOFF | Intent.ESCALATE:
            return _follow(step, intent, decision.handoff, steps)
        case _:
            assert_never(intent)


def choose_repeat(step: Step, handoff: Mapping[str, JsonValue], steps: Mapping[str, Step]) -> GoTo | Stop:
    """Return where `repeat` leads: the step's `repeat` target, or the step itself. Also for repeats that the engine
    makes."""
    transition = step.edges.get(Intent.REPEAT)
    if transition is None or (isinstance(transition, Target) and transition.step_id is None):
        return GoTo(step_id=step.id)
    return _follow(step, Intent.REPEAT, handoff, steps)


def _may_answer(step: Step, intent: Intent) -> bool:
    """Whether the step may answer this intent: by the rules of its check, by its verdict, or by its kind.

    Only the verdict of an ungated registry may end the flow on a step that is not a closure; nothing is closed then.
    """
    if step.check is not None:
        return intent in {Intent.REPEAT, *(rule.intent for rule in step.check.rules)}
    if step.gate is None:
        return intent in _OF_VERDICT
    return step.kind is None or intent in INTENTS_OF_KIND[step.kind]


#: The intents that a verdict can produce.
_OF_VERDICT = frozenset({Intent.NEXT, Intent.REPEAT, Intent.CLOSING})


def _follow(step: Step, intent: Intent, handoff: Mapping[str, JsonValue], steps: Mapping[str, Step]) -> GoTo | Stop:
    transition: Transition | None = step.edges.get(intent)
    match transition:
        case Target(step_id=str(target)):
            return _go_to(step, target, steps)
        case Branch():
            return _follow_branch(step, intent, transition, handoff, steps)
        case None | Target():
            return _stop_routing(f'step "{step.id}" has no transition for {intent}')
        case _:
            assert_never(transition)


def _follow_branch(
    step: Step, intent: Intent, transition: Branch, handoff: Mapping[str, JsonValue], steps: Mapping[str, Step]
) -> GoTo | Stop:
    value, target = handoff.get(transition.condition), transition.default
    if isinstance(value, str | bool | int | float):
        target = transition.targets.get(as_text(value), target)
    if target is None:
        found = "missing" if value is None else compact(value)[:120]
        source = f'the {intent} transition of step "{step.id}"'
        return _stop_routing(f"{source} has no target for {transition.condition} = {found} and no default")
    return _go_to(step, target, steps)


def _go_to(step: Step, target: str, steps: Mapping[str, Step]) -> GoTo | Stop:
    if target not in steps:
        return _stop_routing(f'step "{step.id}" asks for step "{target[:120]}", which is not a flow step of this agent')
    return GoTo(step_id=target)


def _stop_routing(reason: str) -> Stop:
    return Stop(outcome=Outcome.ROUTING_FAILED, reason=reason)
