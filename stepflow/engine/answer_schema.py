"""Prepare an answer schema for a model: in words, closed to undeclared keys where an answer can still fit, or in the
subset that the Messages API's structured output accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from stepflow.domain.json import JsonObject, JsonValue, compact

_CHOICES = ("anyOf", "oneOf", "allOf")
#: Keywords whose schemas apply to a value only under a condition.
CONDITIONS = ("not", "if", "then", "else", "contains", "propertyNames", "dependentSchemas", "dependencies")

#: Keywords that contain schemas; everything else is data and stays as it is.
ONE_SCHEMA = frozenset(
    {"additionalProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems", "items", *CONDITIONS}
)
LIST_OF_SCHEMAS = frozenset({"prefixItems", "items", *_CHOICES})
MAP_OF_SCHEMAS = frozenset(
    {"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"}
)
#: Keywords whose schemas apply to the same value as the schema that contains them.
_SAME_VALUE = (*_CHOICES, "not", "if", "then", "else", "dependentSchemas", "dependencies")


def close_schema(schema: JsonObject) -> JsonObject:
    """Return a copy that forbids undeclared keys in objects that declare keys and do not say otherwise, wherever an
    answer can still fit: not if another schema for the same object may require more keys. An object that declares no
    keys stays open."""
    return _close(schema, ())


def may_need_more_keys(schema: JsonObject, beside: Iterable[JsonObject] = ()) -> bool:
    """Whether an object may need keys that the schema does not declare: because of its own keywords, of schemas inside
    it for the same object, or of schemas `beside` it."""
    declared = _dict(schema, "properties").keys()
    required = {name for one in (schema, *schemas_beside(schema), *beside) for name in _mentioned_keys(one)}
    least = schema.get("minProperties", 0)
    return not required <= declared or (isinstance(least, int) and least > len(declared))


def schemas_beside(schema: JsonObject) -> Iterator[JsonObject]:
    """Yield every schema inside this one that applies to the same value."""
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
    """Return a copy in which every schema is changed, the innermost first."""
    return change(
        {key: _change_inside(key, value, lambda sub: change_schemas(sub, change)) for key, value in schema.items()}
    )


def _close(schema: JsonObject, beside: Sequence[JsonObject]) -> JsonObject:
    around = (*beside, *schemas_beside(schema))
    copy: JsonObject = {}
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            copy[key] = {
                name: _close(sub, [*_pattern_schemas(schema), *_property_schemas(name, around)])
                if isinstance(sub, dict)
                else sub
                for name, sub in value.items()
            }
        elif around or key in _SAME_VALUE or not {"contains", "patternProperties"}.isdisjoint(schema):
            copy[key] = value
        else:
            copy[key] = _change_inside(key, value, close_schema)
    is_explicit = {"additionalProperties", "unevaluatedProperties"} & schema.keys()
    stays_open = not schema.get("properties") or is_explicit or may_need_more_keys(schema, beside)
    return copy if stays_open else {**copy, "additionalProperties": False}


def _property_schemas(name: str, schemas: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Yield the schemas that may apply to a property."""
    for schema in schemas:
        subs = (_dict(schema, "properties").get(name), *_pattern_schemas(schema))
        rest = (schema.get("additionalProperties"), schema.get("unevaluatedProperties"))
        yield from (sub for sub in (*subs, *rest) if isinstance(sub, dict))


def _pattern_schemas(schema: JsonObject) -> list[JsonObject]:
    return [sub for sub in _dict(schema, "patternProperties").values() if isinstance(sub, dict)]


def _mentioned_keys(schema: JsonObject) -> Iterator[str]:
    """Yield the keys that a schema mentions."""
    yield from _dict(schema, "properties")
    lists = [schema.get("required"), *_dict(schema, "dependentRequired").values()]
    yield from (str(name) for names in lists if isinstance(names, list) for name in names)


def _dict(schema: JsonObject, key: str) -> JsonObject:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _change_inside(key: str, value: JsonValue, change: Callable[[JsonObject], JsonObject]) -> JsonValue:
    match value:
        case dict() if key in MAP_OF_SCHEMAS:
            return {name: change(sub) if isinstance(sub, dict) else sub for name, sub in value.items()}
        case dict() if key in ONE_SCHEMA:
            return change(value)
        case list() if key in LIST_OF_SCHEMAS:
            return [change(sub) if isinstance(sub, dict) else sub for sub in value]
        case _:
            return value


#: Keywords that tell the model nothing once every `$ref` is expanded.
_BOOKKEEPING = frozenset({"$schema", "$id", "id", "$anchor", "$comment", "$defs", "definitions", "examples"})
#: Keywords that apply to one type only, and so reveal the type of an untyped schema.
_TYPE_BY_KEYWORD = {
    "properties": "object",
    "items": "array",
    "minItems": "array",
    "pattern": "string",
    "format": "string",
    "minLength": "string",
    "maxLength": "string",
    "minimum": "number",
    "maximum": "number",
}
_TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})


def native_schema(schema: JsonObject) -> JsonObject | None:
    """Convert the schema to the subset that structured output accepts; None if that would reject valid answers.

    Limits outside the subset (lengths, ranges, patterns) are kept: the SDK's `transform_schema` turns them into
    descriptions, and the answer is validated again anyway. A shape that the subset cannot express, such as an object
    with arbitrary keys, gives None.
    """
    try:
        return _simplify(close_schema(schema))
    except _Inexpressible:
        return None


class _Inexpressible(Exception):
    """The subset cannot express this schema."""


def _simplify(schema: JsonValue) -> JsonObject:
    """Convert the schema to shapes that the SDK's `transform_schema` can handle."""
    if not isinstance(schema, dict) or "$ref" in schema:
        raise _Inexpressible
    plain = {key: value for key, value in schema.items() if key not in _BOOKKEEPING}
    if (literals := _simplify_literals(plain)) is not None:
        return literals
    if isinstance(plain.get("type"), list):
        return _split_types(plain)
    if "type" not in plain and (choice := next((key for key in _CHOICES if key in plain), None)):
        return _simplify_choice(plain, choice)
    return _simplify_typed(plain)


def _simplify_literals(schema: JsonObject) -> JsonObject | None:
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is None:
        return None
    if not isinstance(values, list) or not values or any(isinstance(value, dict | list) for value in values):
        raise _Inexpressible
    allowed: JsonObject = {"enum": values}
    return _describe(allowed, schema)


def _split_types(schema: JsonObject) -> JsonObject:
    names = schema["type"]
    assert isinstance(names, list)  # noqa: S101 - the caller has checked
    rest = {key: value for key, value in schema.items() if key not in {"type", "description", "title", "default"}}
    branches: list[JsonValue] = [_simplify({**_keep_type_keywords(rest, str(name)), "type": name}) for name in names]
    if not branches:
        raise _Inexpressible
    return _describe({"anyOf": branches}, schema)


def _simplify_choice(schema: JsonObject, key: str) -> JsonObject:
    variants = schema[key]
    shape = schema.keys() - set(_CHOICES) - {"description", "title", "default"}
    if not isinstance(variants, list) or not variants or len([name for name in _CHOICES if name in schema]) > 1:
        raise _Inexpressible
    if shape and "properties" in shape:
        return _simplify_typed({**schema, "type": "object"})
    if key == "allOf" and len(variants) > 1:
        # Each closed member would forbid the keys that the others require.
        raise _Inexpressible
    # No other keyword constrains the value, so each variant may be closed.
    closed = [_simplify(close_schema(variant) if isinstance(variant, dict) else variant) for variant in variants]
    return _describe(closed[0] if key == "allOf" else {"anyOf": [*closed]}, schema)


def _simplify_typed(schema: JsonObject) -> JsonObject:
    name = schema.get("type") or next((kind for key, kind in _TYPE_BY_KEYWORD.items() if key in schema), None)
    if name not in _TYPES:
        raise _Inexpressible
    plain: JsonObject = {**schema, "type": name}
    if name == "object" and may_need_more_keys(schema):
        raise _Inexpressible
    extra = {key: plain.pop(key) for key in (*_CHOICES, *CONDITIONS) if key in plain}
    match name:
        case "object":
            plain = _simplify_object(plain)
        case "array":
            plain = _simplify_array(plain)
    return _describe(plain, plain, note=extra)


def _simplify_object(schema: JsonObject) -> JsonObject:
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        raise _Inexpressible
    if {"additionalProperties", "unevaluatedProperties"}.isdisjoint(schema):
        # It was left open because a surrounding schema may require more keys.
        raise _Inexpressible
    rest = schema.get("additionalProperties", schema.get("unevaluatedProperties"))
    is_map = (rest is not False and not properties) or "patternProperties" in schema
    simple: JsonObject = {name: _simplify(sub) for name, sub in properties.items() if sub is not False}
    if is_map or any(name not in simple for name in required):
        raise _Inexpressible
    plain = {key: value for key, value in schema.items() if key != "unevaluatedProperties"}
    return {**plain, "properties": simple, "additionalProperties": False}


def _simplify_array(schema: JsonObject) -> JsonObject:
    items = schema.get("items")
    if "prefixItems" in schema or "items" not in schema or isinstance(items, bool | list):
        raise _Inexpressible
    return {**schema, "items": _simplify(items)}


def _keep_type_keywords(schema: JsonObject, name: str) -> JsonObject:
    """Keep the keywords that apply to this one of several types."""
    foreign = {key for key, kind in _TYPE_BY_KEYWORD.items() if kind != name and {kind, name} != {"number", "integer"}}
    if name != "object":
        foreign |= {"required", "additionalProperties", "unevaluatedProperties"}
    return {key: value for key, value in schema.items() if key not in foreign}


def _describe(plain: JsonObject, schema: JsonObject, *, note: JsonObject | None = None) -> JsonObject:
    """Add the author's title and description to the simplified schema, and the dropped keywords as one more line."""
    words = [str(schema["description"])] if schema.get("description") else []
    if note:
        words.append(f"Also: {compact(note)}")
    if words:
        plain = {**plain, "description": "\n".join(words)}
    if isinstance(schema.get("title"), str):
        plain = {**plain, "title": schema["title"]}
    return plain
