"""The answer schema as the model is shown it.

Takes: the schema that answers are validated against. Gives: the closed copy (registry.md §8.3).
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.domain.json import JsonObject, JsonValue

_CHOICES = ("anyOf", "oneOf", "allOf")
#: What holds for a value only as far as other keywords say so.
CONDITIONS = ("not", "if", "then", "else", "contains", "propertyNames", "dependentSchemas", "dependencies")

#: Where schemas stand inside a schema; everything else is data and stays as it is.
_ONE_SCHEMA = frozenset(
    {"additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "items", *CONDITIONS}
)
_LIST_OF_SCHEMAS = frozenset({"prefixItems", "items", *_CHOICES})
_MAP_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)


def close_schema(schema: JsonObject) -> JsonObject:
    """A copy in which every object that does not say otherwise allows no undeclared key (registry.md §8.3)."""
    return change_schemas(schema, _closed)


def change_schemas(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """A copy in which every schema is changed, the innermost first."""
    return change({key: _change_value(key, value, change) for key, value in schema.items()})


def _closed(schema: JsonObject) -> JsonObject:
    is_object = schema.get("type") == "object" or "properties" in schema
    says = {"additionalProperties", "unevaluatedProperties"} & schema.keys()
    return {**schema, "additionalProperties": False} if is_object and not says else schema


def _change_value(key: str, value: JsonValue, change: Callable[[JsonObject], JsonObject]) -> JsonValue:
    match value:
        case dict() if key in _MAP_OF_SCHEMAS:
            return {name: change_schemas(sub, change) if isinstance(sub, dict) else sub for name, sub in value.items()}
        case dict() if key in _ONE_SCHEMA:
            return change_schemas(value, change)
        case list() if key in _LIST_OF_SCHEMAS:
            return [change_schemas(sub, change) if isinstance(sub, dict) else sub for sub in value]
        case _:
            return value
