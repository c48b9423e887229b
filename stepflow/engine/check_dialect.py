"""Steps of the check dialect: an answer, or a second question, passes or fails, and a rule of the step says what comes
next."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from stepflow.domain.decision import Decided, Decision, FormatError, Undecided
from stepflow.domain.definition import Step, StepCheck, StepPrompt
from stepflow.domain.event import CheckJudged
from stepflow.domain.json import JsonObject, JsonValue
from stepflow.domain.state import RunState
from stepflow.domain.words import Intent, Outcome
from stepflow.engine.context import FlowStopped
from stepflow.engine.conversation import Conversation
from stepflow.engine.gate import CLOSING_MISFIT, check_format, describe_misfit, find_object
from stepflow.engine.prompt.render import PromptFailure, render_prompt

#: The form of the answer to a check question.
CHECK_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["result"],
    "properties": {
        "result": {"type": "string", "enum": ["ok", "ng"], "description": "ok: everything holds; ng: something fails"},
        "message": {"type": "string", "description": "what was found, in a sentence"},
    },
}


def decide_by_check(conversation: Conversation, step: Step, check: StepCheck, answer: JsonObject | None) -> Decision:
    """Where the step's check leads, after its question where it has one; a closing that does not fit the schema of its
    validation entry becomes a repeat."""
    context, held = conversation.context, answer or {}
    context.note_missing(step, read_handoff(check, held)[1])
    judged = _ask(conversation, step, check.prompt) if check.prompt else read_own_result(check, answer)
    context.record(CheckJudged(step_id=step.id, result=judged.word, message=judged.message))
    decision = _find_outcome(context.state, check, judged, held)
    if not isinstance(decision, Decided) or decision.intent is not Intent.CLOSING or step.validation is None:
        return decision
    errors = check_format(held, step.validation.schema)
    if not errors:
        return decision
    if check.prompt is not None:  # without a second question the format check has logged it
        conversation.give_up(errors)
    reason = describe_misfit(errors, CLOSING_MISFIT)
    return replace(decision, intent=Intent.REPEAT, target=None, transition=None, reason=reason)


def check_errors(
    state: RunState, step: Step, check: StepCheck, answer: JsonObject, schema: JsonObject | None
) -> tuple[FormatError, ...]:
    """What does not fit the built schema and, where this answer would close, the schema of the validation entry. The
    plain word stands for a readable result, so that ` OK ` costs no format retry."""
    if schema is None:
        return ()
    closing = None
    if check.prompt is None and step.validation is not None:
        decision = _find_outcome(state, check, read_own_result(check, answer), answer)
        closes = isinstance(decision, Decided) and decision.intent is Intent.CLOSING
        closing = step.validation.schema if closes else None
    result = answer.get("result")
    passed = read_result(result) if isinstance(result, str) else None
    plain = answer if passed is None else {**answer, "result": "ok" if passed else "ng"}
    return check_format(plain, schema, closing)


def _ask(conversation: Conversation, step: Step, question: StepPrompt) -> Judged:
    """The outcome of the check question. Its answer gets no format retry: unreadable is a fail."""
    context = conversation.context
    asking = replace(step, prompt=question)
    prompt = render_prompt(context.agent, asking, context.variables(step), context.facts.input_text)
    if isinstance(prompt, PromptFailure):
        raise FlowStopped(Outcome.INVALID_DEFINITION, prompt.message)
    return read_check_answer(conversation.ask(prompt.text, CHECK_SCHEMA))


def _find_outcome(state: RunState, check: StepCheck, judged: Judged, answer: JsonObject) -> Decision:
    return decide_outcome(check, judged, answer, runs=state.runs + 1, retries=state.retries)


PASS_WORDS = frozenset({"ok", "pass", "true"})
FAIL_WORDS = frozenset({"ng", "fail", "false"})

#: `result`, at most five characters that are no letters, and one of the six words.
RESULT_IN_TEXT = re.compile(r"\bresult[\W\d_]{0,5}(ok|pass|true|ng|fail|false)\b", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """The outcome of a check, with what was said about it."""

    passed: bool
    message: str = ""

    @property
    def word(self) -> Literal["ok", "ng"]:
        """The outcome's word in journal and history."""
        return "ok" if self.passed else "ng"


def read_result(value: JsonValue) -> bool | None:
    """True for a pass, False for a fail, None for what is neither."""
    if isinstance(value, bool):
        return value
    word = value.strip().lower() if isinstance(value, str) else ""
    return True if word in PASS_WORDS else False if word in FAIL_WORDS else None


def read_check_answer(text: str) -> Judged:
    """The answer to a check question; what cannot be read has failed."""
    answer = find_object(text)
    if answer is None:
        words = {word.lower() for word in RESULT_IN_TEXT.findall(text)}
        return Judged(passed=bool(words) and words <= PASS_WORDS)
    return Judged(passed=read_result(answer.get("result")) is True, message=_message(answer))


def read_own_result(check: StepCheck, answer: JsonObject | None) -> Judged:
    """The outcome that a step's own answer gives, for a check that asks no second question."""
    result = read_result(answer.get("result")) if answer is not None else None
    passed = result is True or (result is None and not check.is_demanded)
    return Judged(passed=passed, message=_message(answer or {}))


def read_handoff(check: StepCheck, answer: JsonObject) -> tuple[JsonObject, tuple[str, ...]]:
    """What the answer hands on, and the declared keys that it does not hold."""
    own = answer.get("handoff")
    holder = own if isinstance(own, dict) else {}
    values = {key: answer.get(key) if holder.get(key) is None else holder[key] for key in check.handoff_keys}
    given: JsonObject = {key: value for key, value in values.items() if value is not None}
    return given, tuple(key for key in values if key not in given)


def decide_outcome(check: StepCheck, judged: Judged, answer: JsonObject, *, runs: int, retries: int) -> Decision:
    """The first rule of the outcome that still holds. `runs` and `retries` are of this visit, this run included."""
    rules = check.on_pass if judged.passed else check.on_fail
    rule = next((rule for rule in rules if rule.holds(runs=runs, retries=retries)), None)
    if rule is None:
        return Undecided(reason=_nothing_left(judged, runs, retries), lacking="no way on from the check")
    handoff, missing = read_handoff(check, answer)
    return Decided(
        intent=rule.intent,
        target=rule.target,
        transition=rule.transition,
        reason=judged.message or f"the check {'passed' if judged.passed else 'failed'}",
        handoff=handoff,
        missing=missing,
    )


def _message(answer: JsonObject) -> str:
    message = answer.get("message")
    return message if isinstance(message, str) else ""


def _nothing_left(judged: Judged, runs: int, retries: int) -> str:
    outcome, key = ("passed", "onPass") if judged.passed else ("failed", "onFail")
    said = f" ({judged.message})" if judged.message else ""
    spent = f"in this visit the step ran {runs} times and used {retries} retries"
    return f'the check {outcome}{said}, and "{key}" leads nowhere: {spent}'
