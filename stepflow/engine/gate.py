"""Read the decision out of an answer: the intent that a gate allows, or the outcome of a check (flow.md §5 and §7)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from stepflow.domain.decision import Decided, Decision, Undecided
from stepflow.domain.json import JsonObject, JsonValue, compact, value_at
from stepflow.domain.words import INTENT_ALIASES, Intent
from stepflow.engine.answer import find_object

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.definition import Gate, StepCheck

REASON_FIELDS = ("next_action.reason", "reason", "message")


def read_gate(gate: Gate, answer: JsonObject | None) -> Decision:
    """The intent that the answer declares, with its target, handoff and reason; or why there is none. An answer without
    a JSON object is None."""
    value = value_at(answer or {}, gate.intent_field)
    intent = _allowed_intent(gate, value)
    if intent is not None:
        return _decide(gate, answer or {}, intent, violation=None)
    found = "the answer holds no JSON object" if answer is None else f"{gate.intent_field} is {_shown(value)}"
    problem = f"{found}, which is none of the allowed intents: {', '.join(gate.allowed)}"
    if gate.fail_fast or gate.fallback_intent is None:
        return Undecided(reason=problem)
    return _decide(gate, answer or {}, gate.fallback_intent, violation=problem)


def canonical_answer(gate: Gate, answer: JsonObject, intent: Intent) -> JsonObject:
    """A copy in which the value at the intent field is the intent's own word, so that `Next` costs no format retry."""
    head, *rest = gate.intent_field.split(".")
    return {**answer, head: _put(answer.get(head), rest, intent.value)}


def stated_reason(answer: JsonObject) -> str | None:
    """The first text among the answer's reason fields (flow.md §5.8)."""
    texts: Iterable[JsonValue] = (value_at(answer, path) for path in REASON_FIELDS)
    return next((text for text in texts if isinstance(text, str) and text), None)


def _allowed_intent(gate: Gate, value: JsonValue) -> Intent | None:
    if not isinstance(value, str):
        return None
    word = value.lower()
    intent = INTENT_ALIASES.get(word) or next((known for known in Intent if known == word), None)
    return intent if intent in gate.allowed or intent is Intent.ABORT else None


def _decide(gate: Gate, answer: JsonObject, intent: Intent, *, violation: str | None) -> Decided:
    target = value_at(answer, gate.target_field) if gate.target_field and intent is Intent.JUMP else None
    values = {path: value_at(answer, path) for path in gate.handoff_fields}
    given = {path: value for path, value in values.items() if value is not None}
    return Decided(
        intent=intent,
        target=target if isinstance(target, str) and target else None,
        handoff={**{path.rpartition(".")[2]: value for path, value in given.items()}, **given},
        missing=tuple(path for path in values if path not in given),
        reason=_reason(answer, gate, intent, violation),
        violation=violation,
    )


def _reason(answer: JsonObject, gate: Gate, intent: Intent, violation: str | None) -> str:
    given = stated_reason(answer)
    if given is not None:
        return given
    if violation is not None:
        return f"{violation}; failFast is off, so the fallback intent {intent} was used"
    return f"the answer declares {intent} at {gate.intent_field}"


def _shown(value: JsonValue) -> str:
    text = "missing" if value is None else compact(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def _put(value: JsonValue, parts: list[str], word: str) -> JsonValue:
    """A copy of the value with the word at this path."""
    if not parts:
        return word
    head, *rest = parts
    if isinstance(value, list):
        return [_put(item, rest, word) if at == int(head) else item for at, item in enumerate(value)]
    holder = value if isinstance(value, dict) else {}
    return {**holder, head: _put(holder.get(head), rest, word)}


PASS_WORDS = frozenset({"ok", "pass", "true"})
FAIL_WORDS = frozenset({"ng", "fail", "false"})

#: `result`, at most five characters that are no letters, and one of the six words (flow.md §7).
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
