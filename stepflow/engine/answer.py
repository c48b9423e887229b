"""A model's answer parsed and checked, with corrections asked for, whoever reads its intent (flow.md §4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.decision import FormatError
from stepflow.domain.words import Strategy
from stepflow.engine.gate.answer import correct_step_id, find_object, find_objects
from stepflow.engine.prompt.messages import correction_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepflow.domain.decision import Decision
    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.engine.context import FlowContext
    from stepflow.engine.conversation import Conversation

NO_OBJECT = (FormatError(path="(answer)", message="no JSON object"),)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """An answer with what was made of it."""

    answer: JsonObject
    decision: Decision


@dataclass(frozen=True, kw_only=True)
class ParsedAnswer:
    """The answer object of one exchange; where there is none, `missing` says what is there instead."""

    answer: JsonObject | None
    missing: tuple[FormatError, ...] = ()


@dataclass(frozen=True, kw_only=True)
class CheckedAnswer:
    """The last readable answer of a conversation, None when there was none, and the errors left in it."""

    answer: JsonObject | None
    errors: tuple[FormatError, ...] = ()


def parse_answer(conversation: Conversation, step: Step) -> ParsedAnswer:
    """Let the model answer; the JSON object in its last text, under the running step's id.

    Where only words describe the answer's form, the object must be the only one: nothing is guessed.
    """
    text, request = conversation.listen(), conversation.request
    alone = request.schema is not None and request.strategy is not Strategy.NATIVE
    candidate, missing = _find(text, alone=alone)
    answer = correct(conversation.context, step, candidate) if candidate is not None else None
    if missing in ((), NO_OBJECT):
        conversation.learn(answer)
    return ParsedAnswer(answer=answer, missing=missing)


def check_answer(
    conversation: Conversation,
    step: Step,
    parsed: ParsedAnswer,
    errors_of: Callable[[JsonObject], tuple[FormatError, ...]],
) -> CheckedAnswer:
    """Ask for corrections while the answer does not fit and the step has format retries left (flow.md §4.4)."""
    context, answer = conversation.context, parsed.answer
    errors = parsed.missing if parsed.answer is None else errors_of(parsed.answer)
    while errors and context.state.format_retries < step.format_retries:
        context.note(
            "warning", f'[Format] retry {context.state.format_retries + 1}/{step.format_retries} on step "{step.id}"'
        )
        conversation.correct(correction_message(errors), tuple(map(str, errors)))
        corrected = parse_answer(conversation, step)
        answer = answer if corrected.answer is None else corrected.answer
        errors = corrected.missing if corrected.answer is None else errors_of(corrected.answer)
    if errors:
        give_up(context, step, errors)
    return CheckedAnswer(answer=answer, errors=errors)


def _find(text: str, *, alone: bool) -> tuple[JsonObject | None, tuple[FormatError, ...]]:
    if not alone:
        candidate = find_object(text)
        return candidate, () if candidate is not None else NO_OBJECT
    objects = find_objects(text)
    if len(objects) == 1:
        return objects[0], ()
    several = (FormatError(path="(answer)", message=f"{len(objects)} JSON objects, where there must be exactly one"),)
    return None, several if objects else NO_OBJECT


def correct(context: FlowContext, step: Step, answer: JsonObject) -> JsonObject:
    """The answer under the running step's id (flow.md §4.3)."""
    corrected, got = correct_step_id(answer, step.id)
    if got is not None:
        context.note("warning", f'[StepFlow] stepId corrected: "{got[:200]}" -> "{step.id}"')
    return corrected


def give_up(context: FlowContext, step: Step, errors: tuple[FormatError, ...]) -> None:
    """Log that the flow goes on with an answer that does not fit."""
    context.note("warning", f'[Format] giving up on step "{step.id}"', {"errors": [str(error) for error in errors]})


def note_missing(context: FlowContext, step: Step, paths: Iterable[str]) -> None:
    """Log the handoff fields that an answer did not hold (flow.md §5)."""
    for path in paths:
        context.note("warning", f'[StepFlow] Handoff field "{path}" missing', {"step": step.id})


def describe_misfit(errors: tuple[FormatError, ...]) -> str:
    """Why an answer that does not fit does not close."""
    return f"the closing answer does not fit its schema: {'; '.join(str(error) for error in errors[:5])}"
