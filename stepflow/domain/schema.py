"""The answer schema as the model is shown it.

Takes: the schema that answers are validated against. Gives: the closed copy (registry.md §8.3).
May touch: nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
    closed: JsonObject = {key: _close_value(key, value) for key, value in schema.items()}
    is_object = schema.get("type") == "object" or "properties" in schema
    if is_object and not {"additionalProperties", "unevaluatedProperties"} & schema.keys():
        closed["additionalProperties"] = False
    return closed


def _close_value(key: str, value: JsonValue) -> JsonValue:
    match value:
        case dict() if key in _MAP_OF_SCHEMAS:
            return {name: close_schema(sub) if isinstance(sub, dict) else sub for name, sub in value.items()}
        case dict() if key in _ONE_SCHEMA:
            return close_schema(value)
        case list() if key in _LIST_OF_SCHEMAS:
            return [close_schema(sub) if isinstance(sub, dict) else sub for sub in value]
        case _:
            return value
