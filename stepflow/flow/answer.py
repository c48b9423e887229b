"""An answer brought into form, whoever reads its intent.

Takes: an open conversation and what the model said. Gives: `Settled`: the answer object and what still does not fit.
May touch: the model, through the conversation (flow.md §4.1, §4.3, §4.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.decision import FormatError
from stepflow.gate import correct_step_id, find_object
from stepflow.prompt import correction_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepflow.domain.decision import Decision, Unanswered
    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.flow.conversation import Conversation
    from stepflow.flow.track import Track

NO_OBJECT = (FormatError(path="(answer)", message="no JSON object"),)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An answer with what was made of it."""

    answer: JsonObject
    decision: Decision


@dataclass(frozen=True, kw_only=True)
class Settled:
    """The last readable answer of a conversation, None when there was none, and the errors left in it."""

    answer: JsonObject | None
    errors: tuple[FormatError, ...] = ()


def find_answer(track: Track, step: Step, text: str) -> JsonObject | None:
    """The JSON object in a text, under the running step's id."""
    answer = find_object(text)
    return correct(track, step, answer) if answer is not None else None


def settle_format(
    conversation: Conversation,
    step: Step,
    answer: JsonObject | None,
    errors_of: Callable[[JsonObject], tuple[FormatError, ...]],
) -> Settled | Unanswered:
    """Ask for corrections while the answer does not fit and the step has format retries left (flow.md §4.4)."""
    track = conversation.track
    errors = NO_OBJECT if answer is None else errors_of(answer)
    while errors and track.state.format_retries < step.format_retries:
        track.note(
            "warning", f'[Format] retry {track.state.format_retries + 1}/{step.format_retries} on step "{step.id}"'
        )
        conversation.say(correction_message(errors), format_retry=True, errors=tuple(map(str, errors)))
        text = conversation.listen()
        if not isinstance(text, str):
            return text
        corrected = find_answer(track, step, text)
        answer = answer if corrected is None else corrected
        errors = NO_OBJECT if corrected is None else errors_of(corrected)
    if errors:
        give_up(track, step, errors)
    return Settled(answer=answer, errors=errors)


def correct(track: Track, step: Step, answer: JsonObject) -> JsonObject:
    """The answer under the running step's id (flow.md §4.3)."""
    corrected, got = correct_step_id(answer, step.id)
    if got is not None:
        track.note("warning", f'[StepFlow] stepId corrected: "{got[:200]}" -> "{step.id}"')
    return corrected


def give_up(track: Track, step: Step, errors: tuple[FormatError, ...]) -> None:
    """Log that the flow goes on with an answer that does not fit."""
    track.note("warning", f'[Format] giving up on step "{step.id}"', {"errors": [str(error) for error in errors]})


def note_missing(track: Track, step: Step, paths: Iterable[str]) -> None:
    """Log the handoff fields that an answer did not hold (flow.md §5)."""
    for path in paths:
        track.note("warning", f'[StepFlow] Handoff field "{path}" missing', {"step": step.id})


def misfit(errors: tuple[FormatError, ...]) -> str:
    """Why an answer that does not fit does not close."""
    return f"the closing answer does not fit its schema: {'; '.join(str(error) for error in errors[:5])}"
