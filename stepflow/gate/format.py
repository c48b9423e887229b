"""Check an answer against the schema that the agent's author wrote.

Takes: answer and answer schema. Gives: every `FormatError`, sorted by path (flow.md §4.4, prompts.md §9.5).
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from jsonschema.validators import validator_for

from stepflow.domain.decision import FormatError
from stepflow.domain.json import compact
from stepflow.domain.schema import CONDITIONS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jsonschema.exceptions import ValidationError

    from stepflow.domain.json import JsonObject, JsonValue

#: A message that quotes a long value is cut here: it goes into a prompt.
MAX_MESSAGE = 400

_SHAPE = frozenset({"required", "type", "enum", "const", "additionalProperties"})
_CONDITIONAL = frozenset({"anyOf", "oneOf", "allOf", *CONDITIONS})


def check_format(answer: JsonObject, *schemas: JsonObject | None) -> tuple[FormatError, ...]:
    """Every way in which the answer does not fit the schemas. `format` is not asserted (registry.md §8.2)."""
    found = {
        FormatError(path=_path(error.absolute_path), message=_message(error))
        for schema in schemas
        if schema is not None
        for error in validator_for(schema, default=Draft202012Validator)(schema).iter_errors(answer)
    }
    return tuple(sorted(found, key=lambda error: (error.path, error.message)))


def has_shape(answer: JsonObject, schema: JsonObject) -> bool:
    """Whether the answer has what a service that heeds the schema cannot leave out: keys, types, listed values.
    Lengths, patterns and conditions are beyond such a service."""
    validator = validator_for(schema, default=Draft202012Validator)(schema)
    return not any(
        error.validator in _SHAPE and _CONDITIONAL.isdisjoint(error.absolute_schema_path)
        for error in validator.iter_errors(answer)
    )


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
            text = f"{_value(instance)} is not one of {compact(wanted)}"
        case "type":
            text = f"{_value(instance)} is not of type {_types(wanted)}"
        case "anyOf" | "oneOf" if error.context:
            nearest = best_match(error.context)
            text = f"fits none of the allowed forms; the nearest: {nearest.message if nearest else error.message}"
        case _:
            text = error.message
    return text if len(text) <= MAX_MESSAGE else f"{text[:MAX_MESSAGE]}…"


def _value(value: JsonValue) -> str:
    text = compact(value)
    return text if len(text) <= MAX_MESSAGE // 4 else f"{text[: MAX_MESSAGE // 4]}…"


def _types(wanted: JsonValue) -> str:
    return " or ".join(str(word) for word in wanted) if isinstance(wanted, list) else str(wanted)
