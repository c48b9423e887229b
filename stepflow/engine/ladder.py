"""Which of its models a step is asked on: a run begins on the first rung of a ladder, and only ever climbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.ladder import ModelChanged

if TYPE_CHECKING:
    from stepflow.domain.definition import Step
    from stepflow.domain.ladder import ClimbCause, Rung
    from stepflow.engine.context import FlowContext


def current_rung(context: FlowContext, step: Step) -> Rung:
    """Where the step stands on its ladder."""
    ladder = context.agent.ladder_of(step, context.facts.model)
    return ladder.find(context.state.rungs.get(ladder.owner))


def find_change(context: FlowContext, step: Step, cause: ClimbCause, reason: str) -> ModelChanged | None:
    """The change to the step's next model, for whoever records it; None where there is none for this cause."""
    ladder, rung = context.agent.ladder_of(step, context.facts.model), current_rung(context, step)
    above = None if step.command else ladder.above(rung, cause)
    if above is None:
        return None
    return ModelChanged(
        step_id=step.id,
        owner=ladder.owner,
        before=str(rung),
        to=str(above),
        fallback=above.fallback,
        cause=cause,
        reason=reason,
    )
