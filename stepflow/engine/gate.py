"""Read an answer: find its JSON object, check it against the schema, and read the intent that the gate allows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from stepflow.domain.decision import Decided, Decision, FormatError, Undecided
from stepflow.domain.definition import Gate, Step
from stepflow.domain.json import JsonObject, JsonValue, compact, value_at
from stepflow.domain.text import cut
from stepflow.domain.words import INTENT_ALIASES, Intent
from stepflow.engine.answer_schema import CONDITIONS, change_schemas
from stepflow.engine.patterns import PatternTooSlow, Search

FENCE = re.compile(
    r"^[ \t]*(?P<mark>`{3,}|~{3,})(?P<label>[^\n]*)\n(?P<body>.*?)^[ \t]*(?P=mark)[`~]*[ \t]*$",
    re.DOTALL | re.MULTILINE,
)

#: A text with more openings than this is not searched further: each failed try costs a scan of the text.
MAX_OPENINGS = 1000


NO_OBJECT = (FormatError(path="(answer)", message="no JSON object"),)
CLOSING_MISFIT = "the closing answer does not fit its schema"


@dataclass(frozen=True, kw_only=True)
class ParsedAnswer:
    """The object that a text holds, None where it holds none, and what is wrong with the answer."""

    answer: JsonObject | None
    errors: tuple[FormatError, ...] = ()


def parse_answer(text: str, *, is_only: bool) -> ParsedAnswer:
    """The answer in a text: its first object, or with `is_only` the only one, so that nothing is guessed."""
    first = None if is_only else find_object(text)
    objects = find_objects(text) if is_only else () if first is None else (first,)
    if len(objects) > 1:
        several = f"{len(objects)} JSON objects, where there must be exactly one"
        return ParsedAnswer(answer=None, errors=(FormatError(path="(answer)", message=several),))
    return ParsedAnswer(answer=objects[0]) if objects else ParsedAnswer(answer=None, errors=NO_OBJECT)


def describe_misfit(errors: tuple[FormatError, ...], what: str = "the answer does not fit") -> str:
    """What does not fit, in a sentence: the first errors."""
    return f"{what}: {'; '.join(map(str, errors[:5]))}"


def find_object(text: str) -> JsonObject | None:
    """The first JSON object among: the whole text, the first fenced block, the first balanced `{…}` that parses."""
    fence = FENCE.search(text)
    for candidate in (text.strip(), fence["body"] if fence else ""):
        if (parsed := parse_object(candidate)) is not None:
            return parsed
    return next(_balanced_objects(text), None)


def find_objects(text: str) -> tuple[JsonObject, ...]:
    """Every JSON object in a text that is not part of another one, fenced or bare, also in a list. For where there must
    be exactly one, and nothing is guessed."""
    return tuple(_balanced_objects(text, inner=False))


def parse_object(text: str) -> JsonObject | None:
    """The JSON object that the text is; None for anything else."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _balanced_objects(text: str, *, inner: bool = True) -> Iterator[JsonObject]:
    decoder = json.JSONDecoder(parse_constant=_refuse_constant)
    at = text.find("{")
    for _ in range(MAX_OPENINGS):
        if at < 0:
            return
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            value, end = None, at + 1
        if isinstance(value, dict):
            yield value
        at = text.find("{", at + 1 if inner else end)


def _refuse_constant(word: str) -> None:
    # NaN and Infinity are no JSON, though Python's parser knows them.
    raise ValueError(word)


#: A message that quotes a long value is cut here: it goes into a prompt.
MAX_MESSAGE = 400

_SHAPE = frozenset({"required", "type", "enum", "const", "additionalProperties"})
_CONDITIONAL = frozenset({"anyOf", "oneOf", "allOf", *CONDITIONS})


def check_format(answer: JsonObject, *schemas: JsonObject | None) -> tuple[FormatError, ...]:
    """Every way in which the answer does not fit the schemas. `format` is not asserted."""
    search = Search()
    try:
        errors = {
            FormatError(path=_path(error.absolute_path), message=_message(error))
            for schema in schemas
            if schema is not None
            for error in _errors(answer, schema, search)
        }
    except PatternTooSlow as exc:
        return (FormatError(path=_path(()), message=f"it cannot be compared with its schema: {exc}"),)
    return tuple(sorted(errors, key=lambda error: (error.path, error.message)))


def has_shape(answer: JsonObject, schema: JsonObject) -> bool:
    """Whether the answer has what a service that heeds the schema cannot leave out: keys, types, listed values.
    Lengths, patterns and conditions are beyond such a service."""
    try:
        return not any(
            error.validator in _SHAPE and _CONDITIONAL.isdisjoint(error.absolute_schema_path)
            for error in _errors(answer, schema, Search())
        )
    except PatternTooSlow:
        return False


def _errors(answer: JsonObject, schema: JsonObject, search: Search) -> Iterator[ValidationError]:
    """What jsonschema finds; every pattern is searched for by `search`, where jsonschema itself knows no time limit."""

    def pattern(_: object, wanted: str, value: object, __: object) -> Iterator[ValidationError]:
        if isinstance(value, str) and not search(wanted, value):
            yield ValidationError(f"{value!r} does not match {wanted!r}")

    names = tuple(dict.fromkeys(_names(answer)))
    written = change_schemas(schema, lambda part: _written_out(part, names, search))
    plain = validator_for(schema, default=Draft202012Validator)
    extended: Callable[..., type[Validator]] = extend
    errors: Iterator[ValidationError] = extended(plain, {"pattern": pattern})(written).iter_errors(answer)
    return errors


def _written_out(schema: JsonObject, names: Iterable[str], search: Search) -> JsonObject:
    """`patternProperties` as the `properties` that they come to for these names."""
    patterns, properties = schema.get("patternProperties"), schema.get("properties", {})
    if not isinstance(patterns, dict) or not isinstance(properties, dict):
        return schema
    written = dict(properties)
    for name in names:
        fitting = [part for wanted, part in patterns.items() if search(wanted, name)]
        every = [written[name], *fitting] if name in written else fitting
        if fitting:
            written[name] = every[0] if len(every) == 1 else {"allOf": every}
    rest = {key: value for key, value in schema.items() if key != "patternProperties"}
    return {**rest, "properties": written}


def _names(value: JsonValue) -> Iterator[str]:
    """The names of all properties, at every depth."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as inner:
                yield from inner
                waiting += inner.values()
            case list() as items:
                waiting += items


def _path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path or "(answer)"


def _message(error: ValidationError) -> str:
    # jsonschema types these two as "perhaps not set"; on an error that a schema gave they always are.
    keyword, wanted, instance = (
        str(error.validator),
        cast("JsonValue", error.validator_value),
        cast("JsonValue", error.instance),
    )
    match keyword:
        case "enum":
            text = f"{cut(compact(instance), MAX_MESSAGE // 4)} is not one of {compact(wanted)}"
        case "type":
            types = " or ".join(map(str, wanted)) if isinstance(wanted, list) else wanted
            text = f"{cut(compact(instance), MAX_MESSAGE // 4)} is not of type {types}"
        case "anyOf" | "oneOf" if error.context:
            nearest = best_match(error.context)
            text = f"fits none of the allowed forms; the nearest: {nearest.message if nearest else error.message}"
        case _:
            text = error.message
    return cut(text, MAX_MESSAGE)


REASON_FIELDS = ("next_action.reason", "reason", "message")


def decide_by_gate(gate: Gate, parsed: ParsedAnswer) -> Decision:
    """The gate's decision; a closing that does not fit its schema becomes a repeat."""
    decision = read_gate(gate, parsed.answer)
    if parsed.errors and isinstance(decision, Decided) and decision.intent is Intent.CLOSING:
        return replace(decision, intent=Intent.REPEAT, reason=describe_misfit(parsed.errors, CLOSING_MISFIT))
    return decision


def gate_errors(step: Step, gate: Gate, answer: JsonObject, schema: JsonObject | None) -> tuple[FormatError, ...]:
    """What does not fit the schemas of the intent that the answer declares; nothing is checked when it aborts."""
    decision = read_gate(gate, answer)
    if isinstance(decision, Undecided) or decision.violation is not None:
        return check_format(answer, schema)
    if decision.intent is Intent.ABORT:
        return ()
    closing = step.validation.schema if decision.intent is Intent.CLOSING and step.validation else None
    return check_format(canonical_answer(gate, answer, decision.intent), schema, closing)


def read_gate(gate: Gate, answer: JsonObject | None) -> Decision:
    """The intent that the answer declares, with its target, handoff and reason; or why there is none. An answer without
    a JSON object is None."""
    value = value_at(answer or {}, gate.intent_field)
    intent = _allowed_intent(gate, value)
    if intent is not None:
        return _decide(gate, answer or {}, intent, violation=None)
    found = "the answer holds no JSON object" if answer is None else f"{gate.intent_field} is {_describe_value(value)}"
    problem = f"{found}, which is none of the allowed intents: {', '.join(gate.allowed)}"
    if gate.fail_fast or gate.fallback_intent is None:
        return Undecided(reason=problem)
    return _decide(gate, answer or {}, gate.fallback_intent, violation=problem)


def canonical_answer(gate: Gate, answer: JsonObject, intent: Intent) -> JsonObject:
    """A copy in which the value at the intent field is the intent's own word, so that `Next` costs no format retry."""
    head, *rest = gate.intent_field.split(".")
    return {**answer, head: _put(answer.get(head), rest, intent.value)}


def stated_reason(answer: JsonObject) -> str | None:
    """The first text among the answer's reason fields."""
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


def _describe_value(value: JsonValue) -> str:
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
