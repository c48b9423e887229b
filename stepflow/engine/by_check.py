"""The intent found by a check: a second question, or the step's own `result` (flow.md §7).

Takes: an open conversation, the step, its check and schema. Gives: `Reading`, or why there is no answer.
May touch: the model, through the conversation.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided, FormatError, Stop, Unanswered
from stepflow.domain.json import JsonObject
from stepflow.domain.words import Intent, Outcome
from stepflow.engine.answer import Heard, Reading, Settled, give_up, hear_answer, misfit, note_missing, settle_format
from stepflow.engine.gate.answer import check_format
from stepflow.engine.gate.decision import (
    Judged,
    decide_outcome,
    read_check_answer,
    read_handoff,
    read_own_result,
    read_result,
)
from stepflow.engine.prompt.render import PromptFailure, render_prompt

if TYPE_CHECKING:
    from stepflow.domain.check import Check
    from stepflow.domain.decision import Decision
    from stepflow.domain.definition import Step, StepPrompt
    from stepflow.engine.conversation import Conversation
    from stepflow.engine.track import Track

#: registry.md §7: the forced answer of a check question.
CHECK_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {"type": "string", "enum": ["ok", "ng"], "description": "ok: everything holds; ng: something fails"},
        "message": {"type": "string", "description": "what was found, in a sentence"},
    },
}


def read_by_check(
    conversation: Conversation, step: Step, check: Check, schema: JsonObject | None
) -> Reading | Unanswered:
    """The step's answer and the rule that its check leads to."""
    track = conversation.track
    settled = _own_answer(conversation, step, check, schema)
    if not isinstance(settled, Settled):
        return settled
    answer = settled.answer or {}
    note_missing(track, step, read_handoff(check, answer)[1])
    judged = _ask(conversation, step, check.prompt) if check.prompt else read_own_result(check, settled.answer)
    if isinstance(judged, Unanswered):
        return judged
    track.note("info", f"[Check] {step.id}: {judged.word}", {"message": judged.message})
    decision = _decide(track, check, judged, answer)
    return Reading(answer=answer, decision=_held_back(track, step, check, answer, decision))


def _own_answer(
    conversation: Conversation, step: Step, check: Check, schema: JsonObject | None
) -> Settled | Unanswered:
    heard = hear_answer(conversation, step)
    if not isinstance(heard, Heard):
        return heard
    if schema is None:
        return Settled(answer=heard.answer)
    return settle_format(conversation, step, heard, lambda one: _errors(conversation.track, step, check, one, schema))


def _errors(track: Track, step: Step, check: Check, answer: JsonObject, schema: JsonObject) -> tuple[FormatError, ...]:
    """What does not fit the built schema and, where this answer would close, the schema of the validation entry."""
    closing = None
    if check.prompt is None and step.validation is not None:
        decision = _decide(track, check, read_own_result(check, answer), answer)
        closes = isinstance(decision, Decided) and decision.intent is Intent.CLOSING
        closing = step.validation.schema if closes else None
    return check_format(_canonical(answer), schema, closing)


def _canonical(answer: JsonObject) -> JsonObject:
    """A copy with the plain word of a readable result, so that ` OK ` costs no format retry."""
    result = answer.get("result")
    if not isinstance(result, str) or read_result(result) is None:
        return answer
    return {**answer, "result": "ok" if read_result(result) else "ng"}


def _ask(conversation: Conversation, step: Step, question: StepPrompt) -> Judged | Unanswered:
    """The outcome of the check question. Its answer gets no format retry: unreadable is a fail."""
    track = conversation.track
    asking = replace(step, prompt=question)
    prompt = render_prompt(track.agent, asking, track.variables(step), track.facts.input_text)
    if isinstance(prompt, PromptFailure):
        return Stop(outcome=Outcome.INVALID_DEFINITION, reason=prompt.message)
    text = conversation.ask(prompt.text, CHECK_SCHEMA)
    return read_check_answer(text) if isinstance(text, str) else text


def _decide(track: Track, check: Check, judged: Judged, answer: JsonObject) -> Decision:
    state = track.state
    return decide_outcome(check, judged, answer, runs=state.runs + 1, retries=state.retries)


def _held_back(track: Track, step: Step, check: Check, answer: JsonObject, decision: Decision) -> Decision:
    """A closing that does not fit the schema of its validation entry becomes a repeat (flow.md §4.4)."""
    if not isinstance(decision, Decided) or decision.intent is not Intent.CLOSING or step.validation is None:
        return decision
    errors = check_format(answer, step.validation.schema)
    if not errors:
        return decision
    if check.prompt is not None:  # without a second question the format check has logged it
        give_up(track, step, errors)
    return replace(decision, intent=Intent.REPEAT, target=None, transition=None, reason=misfit(errors))
