"""Read a step's answer: find the object, check its format, ask for corrections, let the gate decide.

Takes: an open conversation, the step and its schema. Gives: `Reading`, or `Stop` (flow.md §4).
May touch: the model, through the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided, FormatError, Stop, Undecided
from stepflow.domain.words import Intent, Outcome
from stepflow.gate import canonical_answer, check_format, correct_step_id, find_object, read_gate
from stepflow.prompt import correction_message

if TYPE_CHECKING:
    from stepflow.domain.decision import Decision
    from stepflow.domain.definition import Gate, Step
    from stepflow.domain.json import JsonObject
    from stepflow.flow.conversation import Conversation
    from stepflow.flow.track import Track

NO_OBJECT = (FormatError(path="(answer)", message="no JSON object"),)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An answer with what the gate made of it."""

    answer: JsonObject
    decision: Decision


def read_answer(conversation: Conversation, step: Step, gate: Gate, schema: JsonObject | None) -> Reading | Stop | None:
    """The step's answer after format retries; None when iteration 1 gave no JSON object (flow.md §4.2)."""
    track = conversation.track
    text = conversation.listen()
    if isinstance(text, Stop):
        return text
    answer = find_object(text)
    if answer is None:
        return _no_object(track, step)
    answer = correct(track, step, answer)
    errors = format_errors(step, gate, answer, schema)
    while errors and track.state.format_retries < step.format_retries:
        track.note(
            "warning", f'[Format] retry {track.state.format_retries + 1}/{step.format_retries} on step "{step.id}"'
        )
        conversation.say(correction_message(errors), format_retry=True, errors=tuple(map(str, errors)))
        text = conversation.listen()
        if isinstance(text, Stop):
            return text
        corrected = find_object(text)
        if corrected is None:
            errors = NO_OBJECT
            continue
        answer = correct(track, step, corrected)
        errors = format_errors(step, gate, answer, schema)
    return Reading(answer=answer, decision=decide(track, step, gate, answer, errors))


def correct(track: Track, step: Step, answer: JsonObject) -> JsonObject:
    """The answer under the running step's id (flow.md §4.3)."""
    corrected, got = correct_step_id(answer, step.id)
    if got is not None:
        track.note("warning", f'[StepFlow] stepId corrected: "{got[:200]}" -> "{step.id}"')
    return corrected


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
    if errors:
        track.note("warning", f'[Format] giving up on step "{step.id}"', {"errors": [str(error) for error in errors]})
    if isinstance(decision, Decided):
        for path in decision.missing:
            track.note("warning", f'[StepFlow] Handoff field "{path}" missing', {"step": step.id})
        if decision.violation is not None:
            track.note("warning", f'[StepFlow][SpecViolation] step "{step.id}": {decision.violation}')
        if errors and decision.intent is Intent.CLOSING:
            listed = "; ".join(str(error) for error in errors[:5])
            return replace(
                decision, intent=Intent.REPEAT, reason=f"the closing answer does not fit its schema: {listed}"
            )
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
