"""The answer schema as the model is shown it: closed wherever an answer can still fit (registry.md §8.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stepflow.domain.json import JsonObject, JsonValue

_CHOICES = ("anyOf", "oneOf", "allOf")
#: What holds for a value only as far as other keywords say so.
CONDITIONS = ("not", "if", "then", "else", "contains", "propertyNames", "dependentSchemas", "dependencies")

#: Where schemas stand inside a schema; everything else is data and stays as it is.
ONE_SCHEMA = frozenset(
    {"additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "items", *CONDITIONS}
)
LIST_OF_SCHEMAS = frozenset({"prefixItems", "items", *_CHOICES})
MAP_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)


#: Schemas in these keywords hold for the same value as the schema that they stand in.
_SAME_VALUE = (*_CHOICES, "not", "if", "then", "else", "dependentSchemas", "dependencies")


def close_schema(schema: JsonObject) -> JsonObject:
    """A copy in which objects that declare keys and do not say otherwise allow no other key, wherever an answer can
    still fit: not where another schema that holds for the same object may ask for more keys. An object that declares
    none is free-form and stays open."""
    return _closed(schema, ())


def asks_for_more(schema: JsonObject, beside: Iterable[JsonObject] = ()) -> bool:
    """Whether an object may need keys that the schema does not declare: its own keywords may say so, schemas inside
    it that hold for the same object, or schemas `beside` it."""
    declared = _dict(schema, "properties").keys()
    required = {name for one in (schema, *schemas_beside(schema), *beside) for name in _names(one)}
    least = schema.get("minProperties", 0)
    return not required <= declared or (isinstance(least, int) and least > len(declared))


def schemas_beside(schema: JsonObject) -> Iterator[JsonObject]:
    """Every schema inside this one that holds for the same value."""
    for key in _SAME_VALUE:
        match schema.get(key):
            case list() as several:
                inside = several
            case dict() as named if key in MAP_OF_SCHEMAS:
                inside = list(named.values())
            case one:
                inside = [one]
        for sub in inside:
            if isinstance(sub, dict):
                yield sub
                yield from schemas_beside(sub)


def change_schemas(schema: JsonObject, change: Callable[[JsonObject], JsonObject]) -> JsonObject:
    """A copy in which every schema is changed, the innermost first."""
    return change({key: _inside(key, value, lambda sub: change_schemas(sub, change)) for key, value in schema.items()})


def _closed(schema: JsonObject, beside: Sequence[JsonObject]) -> JsonObject:
    around = (*beside, *schemas_beside(schema))
    copy: JsonObject = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            copy[key] = {
                name: _closed(sub, [*_patterns(schema), *_of_property(name, around)]) if isinstance(sub, dict) else sub
                for name, sub in value.items()
            }
        elif around or key in _SAME_VALUE or not {"contains", "patternProperties"}.isdisjoint(schema):
            copy[key] = value
        else:
            copy[key] = _inside(key, value, close_schema)
    says = {"additionalProperties", "unevaluatedProperties"} & schema.keys()
    stays_open = not schema.get("properties") or says or asks_for_more(schema, beside)
    return copy if stays_open else {**copy, "additionalProperties": False}


def _of_property(name: str, schemas: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """What these schemas may say of a property."""
    for schema in schemas:
        subs = (_dict(schema, "properties").get(name), *_patterns(schema))
        rest = (schema.get("additionalProperties"), schema.get("unevaluatedProperties"))
        yield from (sub for sub in (*subs, *rest) if isinstance(sub, dict))


def _patterns(schema: JsonObject) -> list[JsonObject]:
    return [sub for sub in _dict(schema, "patternProperties").values() if isinstance(sub, dict)]


def _names(schema: JsonObject) -> Iterator[str]:
    """The keys that a schema speaks of."""
    yield from _dict(schema, "properties")
    lists = [schema.get("required"), *_dict(schema, "dependentRequired").values()]
    yield from (str(name) for names in lists if isinstance(names, list) for name in names)


def _dict(schema: JsonObject, key: str) -> JsonObject:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _inside(key: str, value: JsonValue, change: Callable[[JsonObject], JsonObject]) -> JsonValue:
    match value:
        case dict() if key in MAP_OF_SCHEMAS:
            return {name: change(sub) if isinstance(sub, dict) else sub for name, sub in value.items()}
        case dict() if key in ONE_SCHEMA:
            return change(value)
        case list() if key in LIST_OF_SCHEMAS:
            return [change(sub) if isinstance(sub, dict) else sub for sub in value]
        case _:
            return value
