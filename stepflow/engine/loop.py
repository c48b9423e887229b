"""The flow loop: attempt the step (prompt, model, gate), choose the move (router), complete a closing."""

from __future__ import annotations

from typing import assert_never

from stepflow.domain.agent.definition import AgentDefinition, Step
from stepflow.domain.decision import Close, Decided, FlowResult, GoTo, Move, Stop
from stepflow.domain.event import Routed
from stepflow.domain.run import RunFacts
from stepflow.domain.state import RunState
from stepflow.engine.attempt import attempt_step
from stepflow.engine.completion.closing import complete
from stepflow.engine.context import FlowContext, FlowStopped, demand_approval
from stepflow.engine.router import choose_move
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
                    if result := complete(context, step, attempt):
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
