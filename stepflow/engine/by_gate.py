"""The intent found by a gate: the answer declares it (flow.md §4 and §5).

Takes: an open conversation, the step, its gate and schema. Gives: `Reading`, `Stop`, or None.
May touch: the model, through the conversation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided, FormatError, Stop, Undecided
from stepflow.domain.words import Intent, Outcome, Strategy
from stepflow.engine.answer import Heard, Reading, Settled, hear_answer, misfit, note_missing, settle_format
from stepflow.engine.gate.answer import check_format
from stepflow.engine.gate.decision import canonical_answer, read_gate

if TYPE_CHECKING:
    from stepflow.domain.decision import Decision, Unanswered
    from stepflow.domain.definition import Gate, Step
    from stepflow.domain.json import JsonObject
    from stepflow.engine.conversation import Conversation
    from stepflow.engine.track import Track


def read_by_gate(
    conversation: Conversation, step: Step, gate: Gate, schema: JsonObject | None
) -> Reading | Unanswered | None:
    """The step's answer after format retries; None when iteration 1 gave no JSON object (flow.md §4.2).

    Where the service's own structured output is not what asks, no object is a format error: the next try asks harder.
    """
    track = conversation.track
    heard = hear_answer(conversation, step)
    if not isinstance(heard, Heard):
        return heard
    if heard.answer is None and (schema is None or conversation.request.strategy is Strategy.NATIVE):
        return _no_object(track, step)
    settled = settle_format(conversation, step, heard, lambda one: format_errors(step, gate, one, schema))
    if not isinstance(settled, Settled):
        return settled
    answer = settled.answer
    if answer is None:
        return _no_object(track, step)
    return Reading(answer=answer, decision=decide(track, step, gate, answer, settled.errors))


def format_errors(step: Step, gate: Gate, answer: JsonObject, schema: JsonObject | None) -> tuple[FormatError, ...]:
    """What does not fit; nothing is checked when the answer aborts (flow.md §4.4)."""
    decision = read_gate(gate, answer)
    if isinstance(decision, Undecided) or decision.violation is not None:
        return check_format(answer, schema)
    if decision.intent is Intent.ABORT:
        return ()
    closing = step.validation.schema if decision.intent is Intent.CLOSING and step.validation else None
    return check_format(canonical_answer(gate, answer, decision.intent), schema, closing)


def decide(track: Track, step: Step, gate: Gate, answer: JsonObject, errors: tuple[FormatError, ...]) -> Decision:
    """The gate's decision; a closing that does not fit its schema becomes a repeat (flow.md §4.4)."""
    decision = read_gate(gate, answer)
    if isinstance(decision, Decided):
        note_missing(track, step, decision.missing)
        if decision.violation is not None:
            track.note("warning", f'[StepFlow][SpecViolation] step "{step.id}": {decision.violation}')
        if errors and decision.intent is Intent.CLOSING:
            return replace(decision, intent=Intent.REPEAT, reason=misfit(errors))
    return decision


def _no_object(track: Track, step: Step) -> Stop | None:
    iteration = track.state.iteration
    track.note("error", f'[StepFlow] No intent on iteration {iteration}, step "{step.id}"', {"found": "no JSON object"})
    if iteration == 1:
        return None
    return Stop(
        outcome=Outcome.ROUTING_FAILED,
        reason=f'the answer of step "{step.id}" in iteration {iteration} holds no JSON object',
    )
