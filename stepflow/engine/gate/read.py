"""Read the intent out of an answer. Nothing is guessed.

Takes: a step with a gate, and its answer. Gives: `Decision` (flow.md §5).
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stepflow.domain.decision import Decided, Decision, Undecided
from stepflow.domain.json import JsonObject, JsonValue, compact, value_at
from stepflow.domain.words import Intent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stepflow.domain.definition import Gate

#: flow.md §5.3: words that models use for an intent, the same for every kind.
ALIASES = {
    "continue": Intent.NEXT,
    "pass": Intent.NEXT,
    "retry": Intent.REPEAT,
    "wait": Intent.REPEAT,
    "fail": Intent.REPEAT,
    "done": Intent.CLOSING,
    "finished": Intent.CLOSING,
}

REASON_FIELDS = ("next_action.reason", "reason", "message")


def read_gate(gate: Gate, answer: JsonObject) -> Decision:
    """The intent that the answer declares, with its target, handoff and reason; or why there is none."""
    value = value_at(answer, gate.intent_field)
    intent = _allowed_intent(gate, value)
    if intent is not None:
        return _decide(gate, answer, intent, violation=None)
    problem = f"{gate.intent_field} is {_shown(value)}, which is none of the allowed intents: {', '.join(gate.allowed)}"
    if gate.fail_fast or gate.fallback_intent is None:
        return Undecided(reason=problem)
    return _decide(gate, answer, gate.fallback_intent, violation=problem)


def canonical_answer(gate: Gate, answer: JsonObject, intent: Intent) -> JsonObject:
    """A copy in which the value at the intent field is the intent's own word, so that `Next` costs no format retry."""
    return _replaced(answer, gate.intent_field.split("."), intent.value)


def stated_reason(answer: JsonObject) -> str | None:
    """The first text among the answer's reason fields (flow.md §5.8)."""
    texts: Iterable[JsonValue] = (value_at(answer, path) for path in REASON_FIELDS)
    return next((text for text in texts if isinstance(text, str) and text), None)


def _allowed_intent(gate: Gate, value: JsonValue) -> Intent | None:
    if not isinstance(value, str):
        return None
    word = value.lower()
    intent = ALIASES.get(word) or next((known for known in Intent if known == word), None)
    return intent if intent in gate.allowed or intent is Intent.ABORT else None


def _decide(gate: Gate, answer: JsonObject, intent: Intent, *, violation: str | None) -> Decided:
    target = value_at(answer, gate.target_field) if gate.target_field and intent is Intent.JUMP else None
    found = {path: value_at(answer, path) for path in gate.handoff_fields}
    return Decided(
        intent=intent,
        target=target if isinstance(target, str) and target else None,
        handoff=_handoff(found),
        missing=tuple(path for path, value in found.items() if value is None),
        reason=_reason(answer, gate, intent, violation),
        violation=violation,
    )


def _handoff(found: dict[str, JsonValue]) -> JsonObject:
    given = {path: value for path, value in found.items() if value is not None}
    return {**{path.rpartition(".")[2]: value for path, value in given.items()}, **given}


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


def _replaced(value: JsonValue, parts: list[str], word: str) -> JsonObject:
    copy: JsonObject = dict(value) if isinstance(value, dict) else {}
    head, *rest = parts
    copy[head] = _put(copy.get(head), rest, word) if rest else word
    return copy


def _put(value: JsonValue, parts: list[str], word: str) -> JsonValue:
    if not parts:
        return word
    if isinstance(value, list):
        index = int(parts[0])
        return [_put(item, parts[1:], word) if at == index else item for at, item in enumerate(value)]
    return _replaced(value, parts, word)
