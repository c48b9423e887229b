"""Let the model answer, ask for corrections, and find the intent: by gate (flow.md §5), by check (§7), or by the
agent's verdict (§9.2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided, FormatError, Undecided
from stepflow.domain.event import CheckJudged
from stepflow.domain.json import JsonObject
from stepflow.domain.ladder import ClimbCause
from stepflow.domain.words import Intent, Outcome, StepKind
from stepflow.engine.answer import check_format, find_object, find_objects
from stepflow.engine.completion.finished import VerdictInput, why_finished
from stepflow.engine.context import FlowStopped
from stepflow.engine.gate import (
    Judged,
    canonical_answer,
    decide_outcome,
    read_check_answer,
    read_gate,
    read_handoff,
    read_own_result,
    read_result,
    stated_reason,
)
from stepflow.engine.prompt.messages import correction_message
from stepflow.engine.prompt.render import PromptFailure, render_prompt
from stepflow.engine.router import continuation_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from stepflow.domain.decision import Decision
    from stepflow.domain.definition import Gate, Step, StepCheck, StepPrompt
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
    """The last readable answer of a conversation, None when there was none, and what is wrong with it."""

    answer: JsonObject | None
    errors: tuple[FormatError, ...] = ()


def read_answer(conversation: Conversation, step: Step, schema: JsonObject | None) -> Reading | None:
    """Let the model answer, and find the intent: by gate, by check, or by the agent's verdict (registry.md §7)."""
    if step.gate is not None:
        return read_by_gate(conversation, step, step.gate, schema)
    if step.check is not None:
        return read_by_check(conversation, step, step.check, schema)
    return read_by_verdict(conversation, step, schema)


def read_by_gate(conversation: Conversation, step: Step, gate: Gate, schema: JsonObject | None) -> Reading | None:
    """The step's answer after format retries; None when iteration 1 gave no JSON object (flow.md §4.2),
    unless the gate has a fallback.

    Where words describe the answer's form, no object is a format error: the next try says it again.
    """
    context = conversation.context
    parsed = parse_answer(conversation, step)
    if parsed.answer is not None or (schema is not None and conversation.in_words):
        parsed = correct_answer(conversation, step, parsed, lambda one: format_errors(step, gate, one, schema))
    if parsed.answer is None and gate.fail_fast:
        conversation.change_model(ClimbCause.FORMAT, _describe_errors(NO_OBJECT))
        _no_object(context, step)
        return None
    return Reading(answer=parsed.answer or {}, decision=decide(context, step, gate, parsed.answer, parsed.errors))


def parse_answer(conversation: Conversation, step: Step) -> ParsedAnswer:
    """Let the model answer; the JSON object in its last text, under the running step's id.

    Where only words describe the answer's form, the object must be the only one: nothing is guessed.
    """
    text = conversation.listen()
    objects: tuple[JsonObject, ...]
    if conversation.request.schema is None or not conversation.in_words:
        first = find_object(text)
        objects = () if first is None else (first,)
    else:
        objects = find_objects(text)
    if len(objects) > 1:
        several = f"{len(objects)} JSON objects, where there must be exactly one"
        return ParsedAnswer(answer=None, errors=(FormatError(path="(answer)", message=several),))
    answer = set_step_id(conversation.context, step, objects[0]) if objects else None
    conversation.learn(answer)
    return ParsedAnswer(answer=answer, errors=() if objects else NO_OBJECT)


def correct_answer(
    conversation: Conversation,
    step: Step,
    parsed: ParsedAnswer,
    errors_of: Callable[[JsonObject], tuple[FormatError, ...]],
) -> ParsedAnswer:
    """Ask for corrections while the answer does not fit and the step has format retries left (flow.md §4.4)."""
    context, answer = conversation.context, parsed.answer
    errors = parsed.errors if parsed.answer is None else errors_of(parsed.answer)
    while errors and context.state.format_retries < step.format_retries:
        retry = f"{context.state.format_retries + 1}/{step.format_retries}"
        context.note("warning", f'[Format] retry {retry} on step "{step.id}"')
        conversation.correct(correction_message(errors), tuple(map(str, errors)))
        parsed = parse_answer(conversation, step)
        answer = answer if parsed.answer is None else parsed.answer
        errors = parsed.errors if parsed.answer is None else errors_of(parsed.answer)
    if errors:
        conversation.change_model(ClimbCause.FORMAT, _describe_errors(errors))
        give_up(context, step, errors)
    return ParsedAnswer(answer=answer, errors=errors)


def set_step_id(context: FlowContext, step: Step, answer: JsonObject) -> JsonObject:
    """The answer under the running step's id; one without an id stays as it is (flow.md §4.3)."""
    got = answer.get("stepId")
    if not isinstance(got, str) or got == step.id:
        return answer
    context.note("warning", f'[StepFlow] stepId corrected: "{got[:200]}" -> "{step.id}"')
    return {**answer, "stepId": step.id}


def give_up(context: FlowContext, step: Step, errors: tuple[FormatError, ...]) -> None:
    """Log that the flow goes on with an answer that does not fit."""
    context.note("warning", f'[Format] giving up on step "{step.id}"', {"errors": [str(error) for error in errors]})


def _note_missing(context: FlowContext, step: Step, paths: Iterable[str]) -> None:
    """Log the handoff fields that an answer did not hold (flow.md §5)."""
    for path in paths:
        context.note("warning", f'[StepFlow] Handoff field "{path}" missing', {"step": step.id})


def _describe_misfit(errors: tuple[FormatError, ...]) -> str:
    """Why an answer that does not fit does not close."""
    return f"the closing answer does not fit its schema: {_listed(errors)}"


def _describe_errors(errors: tuple[FormatError, ...]) -> str:
    """Why another model is asked."""
    return f"the answer does not fit: {_listed(errors)}"


def _listed(errors: tuple[FormatError, ...]) -> str:
    return "; ".join(str(error) for error in errors[:5])


def format_errors(step: Step, gate: Gate, answer: JsonObject, schema: JsonObject | None) -> tuple[FormatError, ...]:
    """What does not fit; nothing is checked when the answer aborts (flow.md §4.4)."""
    decision = read_gate(gate, answer)
    if isinstance(decision, Undecided) or decision.violation is not None:
        return check_format(answer, schema)
    if decision.intent is Intent.ABORT:
        return ()
    closing = step.validation.schema if decision.intent is Intent.CLOSING and step.validation else None
    return check_format(canonical_answer(gate, answer, decision.intent), schema, closing)


def decide(
    context: FlowContext, step: Step, gate: Gate, answer: JsonObject | None, errors: tuple[FormatError, ...]
) -> Decision:
    """The gate's decision; a closing that does not fit its schema becomes a repeat (flow.md §4.4)."""
    decision = read_gate(gate, answer)
    if isinstance(decision, Decided):
        _note_missing(context, step, decision.missing)
        if decision.violation is not None:
            context.note("warning", f'[StepFlow][SpecViolation] step "{step.id}": {decision.violation}')
        if errors and decision.intent is Intent.CLOSING:
            return replace(decision, intent=Intent.REPEAT, reason=_describe_misfit(errors))
    return decision


def _no_object(context: FlowContext, step: Step) -> None:
    iteration = context.state.iteration
    context.note(
        "error", f'[StepFlow] No intent on iteration {iteration}, step "{step.id}"', {"found": "no JSON object"}
    )
    if iteration != 1:
        reason = f'the answer of step "{step.id}" in iteration {iteration} holds no JSON object'
        raise FlowStopped(Outcome.ROUTING_FAILED, reason)


#: registry.md §7: the forced answer of a check question.
CHECK_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {"type": "string", "enum": ["ok", "ng"], "description": "ok: everything holds; ng: something fails"},
        "message": {"type": "string", "description": "what was found, in a sentence"},
    },
}


def read_by_check(conversation: Conversation, step: Step, check: StepCheck, schema: JsonObject | None) -> Reading:
    """The step's answer and the rule that its check leads to."""
    context = conversation.context
    parsed = parse_answer(conversation, step)
    if schema is not None:
        parsed = correct_answer(
            conversation, step, parsed, lambda one: _check_errors(context, step, check, one, schema)
        )
    answer = parsed.answer or {}
    _note_missing(context, step, read_handoff(check, answer)[1])
    judged = _ask(conversation, step, check.prompt) if check.prompt else read_own_result(check, parsed.answer)
    context.record(CheckJudged(step_id=step.id, result=judged.word, message=judged.message))
    decision = _check_decision(context, check, judged, answer)
    return Reading(answer=answer, decision=_held_back(conversation, step, check, answer, decision))


def _check_errors(
    context: FlowContext, step: Step, check: StepCheck, answer: JsonObject, schema: JsonObject
) -> tuple[FormatError, ...]:
    """What does not fit the built schema and, where this answer would close, the schema of the validation entry."""
    closing = None
    if check.prompt is None and step.validation is not None:
        decision = _check_decision(context, check, read_own_result(check, answer), answer)
        closes = isinstance(decision, Decided) and decision.intent is Intent.CLOSING
        closing = step.validation.schema if closes else None
    return check_format(_canonical(answer), schema, closing)


def _canonical(answer: JsonObject) -> JsonObject:
    """A copy with the plain word of a readable result, so that ` OK ` costs no format retry."""
    result = answer.get("result")
    if not isinstance(result, str) or read_result(result) is None:
        return answer
    return {**answer, "result": "ok" if read_result(result) else "ng"}


def _ask(conversation: Conversation, step: Step, question: StepPrompt) -> Judged:
    """The outcome of the check question. Its answer gets no format retry: unreadable is a fail."""
    context = conversation.context
    asking = replace(step, prompt=question)
    prompt = render_prompt(context.agent, asking, context.variables(step), context.facts.input_text)
    if isinstance(prompt, PromptFailure):
        raise FlowStopped(Outcome.INVALID_DEFINITION, prompt.message)
    return read_check_answer(conversation.ask(prompt.text, CHECK_SCHEMA))


def _check_decision(context: FlowContext, check: StepCheck, judged: Judged, answer: JsonObject) -> Decision:
    state = context.state
    return decide_outcome(check, judged, answer, runs=state.runs + 1, retries=state.retries)


def _held_back(
    conversation: Conversation, step: Step, check: StepCheck, answer: JsonObject, decision: Decision
) -> Decision:
    """A closing that does not fit the schema of its validation entry becomes a repeat (flow.md §4.4)."""
    if not isinstance(decision, Decided) or decision.intent is not Intent.CLOSING or step.validation is None:
        return decision
    errors = check_format(answer, step.validation.schema)
    if not errors:
        return decision
    if check.prompt is not None:  # without a second question the format check has logged it
        conversation.change_model(ClimbCause.FORMAT, _describe_errors(errors))
        give_up(conversation.context, step, errors)
    return replace(decision, intent=Intent.REPEAT, target=None, transition=None, reason=_describe_misfit(errors))


def read_by_verdict(conversation: Conversation, step: Step, schema: JsonObject | None) -> Reading:
    """The step's answer, and whether the verdict says that the work is finished."""
    parsed = parse_answer(conversation, step)
    if schema is None:
        parsed = replace(parsed, errors=())
    else:
        parsed = correct_answer(conversation, step, parsed, lambda one: check_format(one, schema))
    return judge(conversation.context, step, parsed, tuple(conversation.texts))


def judge(context: FlowContext, step: Step, parsed: ParsedAnswer, texts: tuple[str, ...]) -> Reading:
    """Feed the verdict with one iteration. An answer that does not fit its schema does not finish a closure step."""
    state, closure = context.state, step.kind is StepKind.CLOSURE
    given = VerdictInput(
        iteration=state.iteration,
        limit=context.facts.limits.iterations,
        answers=state.answers + 1,
        texts=texts,
        answer=parsed.answer,
        closure=closure,
    )
    finished = why_finished(context.agent.verdict, given, context.ports.verdict)
    answer = parsed.answer or {}
    closing = step.validation.schema if step.validation else None
    fits = not closure or not (parsed.errors or check_format(answer, closing))
    if finished and fits:
        decision = Decided(intent=Intent.CLOSING, reason=stated_reason(answer) or finished)
    else:
        decision = _go_on(context, step, answer)
    return Reading(answer=answer, decision=decision)


def _go_on(context: FlowContext, step: Step, answer: JsonObject) -> Decided:
    """The step's `next`, else the continuation of an initial step, else the step once more."""
    reason = stated_reason(answer) or "the verdict does not call the work finished yet"
    if Intent.NEXT in step.edges or continuation_of(step.id, context.agent.steps):
        return Decided(intent=Intent.NEXT, reason=reason)
    return Decided(intent=Intent.REPEAT, target=step.id, reason=reason)
