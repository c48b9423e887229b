"""The gate: reads the intent that it allows from an answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stepflow.domain.agent.definition import Gate, Step
from stepflow.domain.decision import Decided, Decision, FormatError, Undecided
from stepflow.domain.json import JsonObject, JsonValue, compact, value_at
from stepflow.domain.words import INTENT_ALIASES, Intent
from stepflow.engine.answer import CLOSING_MISFIT, ParsedAnswer, check_format, describe_misfit

REASON_FIELDS = ("next_action.reason", "reason", "message")


def decide_by_gate(gate: Gate, parsed: ParsedAnswer) -> Decision:
    """Return the gate's decision; a closing that does not fit its schema becomes a repeat."""
    decision = read_gate(gate, parsed.answer)
    if parsed.errors and isinstance(decision, Decided) and decision.intent is Intent.CLOSING:
        return replace(decision, intent=Intent.REPEAT, reason=describe_misfit(parsed.errors, CLOSING_MISFIT))
    return decision


def find_gate_errors(step: Step, gate: Gate, answer: JsonObject, schema: JsonObject | None) -> tuple[FormatError, ...]:
    """Check the answer against the schemas of the intent that it declares; `abort` is not checked."""
    decision = read_gate(gate, answer)
    if isinstance(decision, Undecided) or decision.violation is not None:
        return check_format(answer, schema)
    if decision.intent is Intent.ABORT:
        return ()
    closing = step.validation.schema if decision.intent is Intent.CLOSING and step.validation else None
    return check_format(canonical_answer(gate, answer, decision.intent), schema, closing)


def read_gate(gate: Gate, answer: JsonObject | None) -> Decision:
    """Read the intent, target, handoff and reason from the answer, or say why there is no intent. `answer` is None if
    there was no JSON object."""
    value = value_at(answer or {}, gate.intent_field)
    intent = _allowed_intent(gate, value)
    if intent is not None:
        return _decide(gate, answer or {}, intent, violation=None)
    found = (
        "the answer contains no JSON object" if answer is None else f"{gate.intent_field} is {_describe_value(value)}"
    )
    problem = f"{found}, which is not one of the allowed intents: {', '.join(gate.allowed)}"
    if gate.fail_fast or gate.fallback_intent is None:
        return Undecided(reason=problem)
    return _decide(gate, answer or {}, gate.fallback_intent, violation=problem)


def canonical_answer(gate: Gate, answer: JsonObject, intent: Intent) -> JsonObject:
    """Copy the answer with the canonical spelling of its intent, so that `Next` costs no format retry."""
    head, *rest = gate.intent_field.split(".")
    return {**answer, head: _replace_at(answer.get(head), rest, intent.value)}


def find_reason(answer: JsonObject) -> str | None:
    """Return the first non-empty string among the answer's reason fields."""
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
    present = {path: value for path, value in values.items() if value is not None}
    return Decided(
        intent=intent,
        target=target if isinstance(target, str) and target else None,
        handoff={**{path.rpartition(".")[2]: value for path, value in present.items()}, **present},
        missing=tuple(path for path in values if path not in present),
        reason=_choose_reason(answer, gate, intent, violation),
        violation=violation,
    )


def _choose_reason(answer: JsonObject, gate: Gate, intent: Intent, violation: str | None) -> str:
    stated = find_reason(answer)
    if stated is not None:
        return stated
    if violation is not None:
        return f"{violation}; failFast is off, so the fallback intent {intent} was used"
    return f"the answer declares {intent} at {gate.intent_field}"


def _describe_value(value: JsonValue) -> str:
    text = "missing" if value is None else compact(value)
    return text if len(text) <= 120 else f"{text[:120]}…"


def _replace_at(value: JsonValue, parts: list[str], word: str) -> JsonValue:
    """Copy the value with the word at this path."""
    if not parts:
        return word
    head, *rest = parts
    if isinstance(value, list):
        return [_replace_at(item, rest, word) if at == int(head) else item for at, item in enumerate(value)]
    holder = value if isinstance(value, dict) else {}
    return {**holder, head: _replace_at(holder.get(head), rest, word)}
