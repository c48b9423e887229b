"""The gate: finds the JSON object in a model's answer, checks it against the author's schema, and reads its intent.
Patterns that an agent's author wrote are searched for in untrusted text within a time limit."""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cache
from typing import cast

# Accepts the syntax of `re`, and a time limit: `re` has none, and engines without backtracking lack lookarounds.
import regex
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError, best_match
from jsonschema.protocols import Validator
from jsonschema.validators import extend, validator_for

from stepflow.domain.agent.definition import Gate, Step
from stepflow.domain.flow import Decided, Decision, FormatError, Undecided
from stepflow.domain.json import JsonObject, JsonValue, compact, value_at
from stepflow.domain.text import cut
from stepflow.domain.words import INTENT_ALIASES, Intent
from stepflow.engine.subschemas import CHOICES, CONDITIONS, change_schemas

#: A fenced block, without a body if nothing ends it.
FENCE = re.compile(
    r"^[ \t]*+(?P<mark>`{3,}+|~{3,}+)(?P<label>[^\n]*+)\n(?:(?P<body>.*?)^[ \t]*+(?P=mark)[`~]*+[ \t]*+$|.*+)",
    re.DOTALL | re.MULTILINE,
)
#: How many `{` of a text are tried: each failed try costs a scan of the text.
MAX_OPENINGS = 1000
NO_OBJECT = (FormatError(path="(answer)", message="no JSON object"),)
CLOSING_MISFIT = "the closing answer does not fit its schema"


@dataclass(frozen=True, kw_only=True)
class ParsedAnswer:
    """The JSON object found in a text, None if there is none, and what is wrong with it."""

    answer: JsonObject | None
    errors: tuple[FormatError, ...] = ()


def parse_answer(text: str, *, is_only: bool) -> ParsedAnswer:
    """Return the first object in a text. With `is_only`, several objects are an error, so that nothing is guessed."""
    first = None if is_only else find_object(text)
    # Every top-level object counts: fenced, bare, or in a list.
    objects = tuple(_balanced_objects(text, inner=False)) if is_only else () if first is None else (first,)
    if len(objects) > 1:
        several = f"{len(objects)} JSON objects, where there must be exactly one"
        return ParsedAnswer(answer=None, errors=(FormatError(path="(answer)", message=several),))
    return ParsedAnswer(answer=objects[0]) if objects else ParsedAnswer(answer=None, errors=NO_OBJECT)


def describe_misfit(errors: tuple[FormatError, ...], summary: str = "the answer does not fit") -> str:
    """Return a sentence with the summary and the first five errors."""
    return f"{summary}: {'; '.join(map(str, errors[:5]))}"


def find_object(text: str) -> JsonObject | None:
    """Return the first JSON object: the whole text, the first fenced block, or the first balanced `{…}` that parses."""
    fence = FENCE.search(text)
    for candidate in (text.strip(), (fence and fence["body"]) or ""):
        if (parsed := parse_object(candidate)) is not None:
            return parsed
    return next(_balanced_objects(text), None)


def parse_object(text: str) -> JsonObject | None:
    """Parse a text that is one JSON object; None for anything else."""
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
    # Python's parser accepts NaN and Infinity, which are not JSON.
    raise ValueError(word)


#: CPU time, in seconds, that all searches of one `Search` share.
SECONDS = 2.0


class PatternFault(ValueError):
    """The text is not a regular expression."""


class PatternTooSlow(Exception):
    """A search ran out of time, so whether it matches is unknown."""

    def __init__(self, pattern: str) -> None:
        super().__init__(f'the pattern "{pattern[:100]}" takes longer than {SECONDS:g} s')


class Search:
    """Searches that share one time limit."""

    def __init__(self) -> None:
        self._seconds_left = SECONDS

    def __call__(self, pattern: str, text: str) -> bool:
        """Whether the pattern is found anywhere in the text. Raises `PatternTooSlow`."""
        begun = time.process_time()
        try:
            if self._seconds_left <= 0:
                raise TimeoutError
            return _compile(pattern).search(text, timeout=self._seconds_left) is not None
        except (TimeoutError, MemoryError) as exc:
            raise PatternTooSlow(pattern) from exc
        finally:
            self._seconds_left -= time.process_time() - begun


def check_pattern(pattern: str) -> None:
    """Raises `PatternFault` if the text is not a regular expression."""
    _compile(pattern)


def _compile(pattern: str) -> regex.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return regex.compile(pattern, regex.VERSION0)
        except (regex.error, OverflowError, RecursionError, ValueError) as exc:
            raise PatternFault(str(exc)) from exc


#: Characters of one error message: it goes into a prompt, and may quote a long value.
MAX_MESSAGE = 400
_SHAPE = frozenset({"required", "type", "enum", "const", "additionalProperties"})
_CONDITIONAL = frozenset({*CHOICES, *CONDITIONS})


def check_format(answer: JsonObject, *schemas: JsonObject | None) -> tuple[FormatError, ...]:
    """Return every error of the answer against the schemas, sorted by path. The keyword `format` is not checked."""
    search = Search()
    try:
        errors = {
            FormatError(path=_format_path(error.absolute_path), message=_describe_error(error))
            for schema in schemas
            if schema is not None
            for error in _errors(answer, schema, search)
        }
    except PatternTooSlow as exc:
        return (FormatError(path=_format_path(()), message=f"it cannot be compared with its schema: {exc}"),)
    return tuple(sorted(errors, key=lambda error: (error.path, error.message)))


def has_shape(answer: JsonObject, schema: JsonObject) -> bool:
    """Whether the answer has the keys, types and listed values of the schema. A service that follows the schema
    guarantees these, but not lengths, patterns and conditions."""
    try:
        return not any(
            error.validator in _SHAPE and _CONDITIONAL.isdisjoint(error.absolute_schema_path)
            for error in _errors(answer, schema, Search())
        )
    except PatternTooSlow:
        return False


def _errors(answer: JsonObject, schema: JsonObject, search: Search) -> Iterator[ValidationError]:
    """Yield jsonschema's errors. `search` matches every pattern, because jsonschema itself has no time limit."""
    names = tuple(dict.fromkeys(_property_names(answer)))
    written = change_schemas(schema, lambda part: _expand_patterns(part, names, search))
    plain = validator_for(schema, default=Draft202012Validator)
    _SEARCH.set(search)
    errors: Iterator[ValidationError] = _with_time_limit(plain)(written).iter_errors(answer)
    return errors


#: What the keyword `pattern` is matched by.
_SEARCH: ContextVar[Search] = ContextVar("search")


@cache
def _with_time_limit(plain: type[Validator]) -> type[Validator]:
    """Return the class with its own keyword `pattern`. jsonschema is slow to make a class."""
    extended: Callable[..., type[Validator]] = extend
    return extended(plain, {"pattern": _find_mismatch})


def _find_mismatch(_: object, wanted: str, value: object, __: object) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _SEARCH.get()(wanted, value):
        yield ValidationError(f"{value!r} does not match {wanted!r}")


def _expand_patterns(schema: JsonObject, names: Iterable[str], search: Search) -> JsonObject:
    """Replace `patternProperties` with the equivalent `properties` for these names."""
    patterns, properties = schema.get("patternProperties"), schema.get("properties", {})
    if not isinstance(patterns, dict) or not isinstance(properties, dict):
        return schema
    written = dict(properties)
    for name in names:
        matching = [part for wanted, part in patterns.items() if search(wanted, name)]
        schemas = [written[name], *matching] if name in written else matching
        if matching:
            written[name] = schemas[0] if len(schemas) == 1 else {"allOf": schemas}
    rest = {key: value for key, value in schema.items() if key != "patternProperties"}
    return {**rest, "properties": written}


def _property_names(value: JsonValue) -> Iterator[str]:
    """Yield the names of all properties, at every depth."""
    waiting = [value]
    while waiting:
        match waiting.pop():
            case dict() as inner:
                yield from inner
                waiting += inner.values()
            case list() as items:
                waiting += items


def _format_path(parts: Iterable[str | int]) -> str:
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path or "(answer)"


def _describe_error(error: ValidationError) -> str:
    # jsonschema's types allow these two to be unset; on the error of a schema they never are.
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
