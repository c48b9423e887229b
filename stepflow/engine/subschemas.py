"""Where a JSON Schema contains schemas: the keywords of drafts 7 and 2020-12, and one walk over them."""

from __future__ import annotations

from collections.abc import Callable

from stepflow.domain.json import JsonObject, JsonValue

CHOICES = ("anyOf", "oneOf", "allOf")
#: Keywords whose schemas apply to a value only under a condition.
CONDITIONS = ("not", "if", "then", "else", "contains", "propertyNames", "dependentSchemas", "dependencies")
#: Describes what a text contains, which is no part of the value.
CONTENT = "contentSchema"

_ONE_SCHEMA = frozenset(
    {
        *("additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "items", CONTENT),
        *CONDITIONS,
    }
)
_LIST_OF_SCHEMAS = frozenset({"prefixItems", "items", *CHOICES})
_MAP_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)

#: A keyword, and below it the key or the index where it has several schemas.
Place = tuple[str | int, ...]


def walk(
    schema: JsonObject,
    visit: Callable[[JsonValue, Place], JsonValue],
    copy: Callable[[JsonValue, str], JsonValue] = lambda value, _: value,
) -> JsonObject:
    """Return a copy of the schema, with what `visit` returns for each schema directly inside it, and what `copy`
    returns for the value of each other keyword. Such a value is data, even where it looks like a schema."""
    walked: JsonObject = {}
    for key, value in schema.items():
        match value:
            case dict() if key in _MAP_OF_SCHEMAS:
                walked[key] = {name: visit(sub, (key, name)) for name, sub in value.items()}
            case list() if key in _LIST_OF_SCHEMAS:
                walked[key] = [visit(sub, (key, index)) for index, sub in enumerate(value)]
            case dict() if key in _ONE_SCHEMA:
                walked[key] = visit(value, (key,))
            case _:
                walked[key] = copy(value, key)
    return walked


def change_schemas(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """Return a copy in which every schema is changed, the innermost first."""
    return change(walk(schema, lambda sub, _: change_schemas(sub, change) if isinstance(sub, dict) else sub))
