"""Prepare an answer schema for a model: in words, closed to undeclared keys where an answer can still fit, or in the
subset that the Messages API's structured output accepts; and find what a valid answer can have at a path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.engine.subschemas import CHOICES, CONDITIONS, CONTENT, Place, walk

#: Keywords whose schemas apply to the same value as the schema that contains them.
_SAME_VALUE = (*CHOICES, "not", "if", "then", "else", "dependentSchemas", "dependencies")


def close_schema(schema: JsonObject) -> JsonObject:
    """Return a copy that forbids undeclared keys in objects that declare keys and do not say otherwise, wherever an
    answer can still fit: not if another schema for the same object may require more keys. An object that declares no
    keys stays open."""
    return _close(schema, ())


def may_need_more_keys(schema: JsonObject, beside: Iterable[JsonObject] = ()) -> bool:
    """Whether an object may need keys that the schema does not declare: because of its own keywords, of schemas inside
    it for the same object, or of schemas `beside` it."""
    declared = _dict(schema, "properties").keys()
    required = {name for one in (schema, *_schemas_beside(schema), *beside) for name in _mentioned_keys(one)}
    least = schema.get("minProperties", 0)
    return not required <= declared or (isinstance(least, int) and least > len(declared))


def _schemas_beside(schema: JsonObject) -> list[JsonObject]:
    """Return every schema inside this one that applies to the same value."""
    beside: list[JsonObject] = []

    def visit(sub: JsonValue, place: Place) -> JsonValue:
        if isinstance(sub, dict) and place[0] in _SAME_VALUE:
            beside.extend((sub, *_schemas_beside(sub)))
        return sub

    walk(schema, visit)
    return beside


def _close(schema: JsonObject, beside: Sequence[JsonObject]) -> JsonObject:
    around = (*beside, *_schemas_beside(schema))
    shares_values = bool(around) or not {"contains", "patternProperties"}.isdisjoint(schema)

    def visit(sub: JsonValue, place: Place) -> JsonValue:
        if not isinstance(sub, dict):
            return sub
        if place[0] == "properties":
            return _close(sub, [*_pattern_schemas(schema), *_property_schemas(str(place[-1]), around)])
        stays = shares_values or place[0] in (*_SAME_VALUE, CONTENT)
        return sub if stays else close_schema(sub)

    copy = walk(schema, visit)
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
    if "type" not in plain and (choice := next((key for key in CHOICES if key in plain), None)):
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
    shape = schema.keys() - set(CHOICES) - {"description", "title", "default"}
    if not isinstance(variants, list) or not variants or len([name for name in CHOICES if name in schema]) > 1:
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
    extra = {key: plain.pop(key) for key in (*CHOICES, *CONDITIONS) if key in plain}
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


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a valid answer can have at a path. `nodes` are the schemas that describe it.

    `blocked` says why nothing can be there, and is empty otherwise. `undeclared` says that something can be there
    although the schema does not name it: a service that enforces the schema would let nothing through.
    """

    nodes: tuple[JsonValue, ...] = ()
    blocked: str = ""
    undeclared: str = ""

    def takes_text(self, words: tuple[str, ...] = ()) -> bool:
        """Whether a string can be there: one of these words, if any are given."""
        return not self.nodes or any(_takes_text(node, words) for node in self.nodes)


def look_into(schema: JsonObject, path: str) -> Held:
    """What valid answers can have at a dotted path. `if`, `not` and patterns of names are not followed."""
    nodes: list[JsonValue] = [schema]
    undeclared = walked = ""
    for part in path.split("."):
        where = f'"{walked}"' if walked else "the answer"
        steps = [_step(node, part) for node in nodes]
        reasons = [step for step in steps if isinstance(step, str)]
        if reasons and len(reasons) == len(steps):
            return Held(blocked=f"{where} {reasons[0]}")
        nodes = [inner for step in steps if not isinstance(step, str) for inner in step]
        if not nodes and not undeclared:
            undeclared = f'{where} does not declare "{part}"'
        walked = f"{walked}.{part}" if walked else part
        if nodes and all(node is False for node in nodes):
            return Held(blocked=f'"{walked}" can have no value')
    return Held(nodes=tuple(nodes), undeclared=undeclared)


def _step(schema: JsonValue, part: str) -> list[JsonValue] | str:
    """The schemas of one part of what a schema describes, empty when it does not name the part; or why it cannot be
    there."""
    if not isinstance(schema, dict):
        return []
    kinds = schema.get("type", ["object", "array"])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "object" not in kinds and not ("array" in kinds and part.isdecimal()):
        return f"is of the type {' or '.join(map(str, kinds))}, which has no parts"
    values = schema.get("enum")
    if isinstance(values, list) and not any(isinstance(value, dict) and part in value for value in values):
        return f'can have no "{part}"'
    inner = _find_property(schema, part) if "object" in kinds else _find_item(schema, int(part))
    members = schema.get("allOf")
    for step in [_step(member, part) for member in members] if isinstance(members, list) else ():
        if isinstance(step, str):
            return step
        inner = inner if isinstance(inner, str) and not step else [*([] if isinstance(inner, str) else inner), *step]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        steps = [_step(option, part) for option in options] if isinstance(options, list) else []
        open_ones = [step for step in steps if not isinstance(step, str)]
        if steps and not open_ones:
            return steps[0]
        if not isinstance(inner, str):
            inner = [*inner, *(node for step in open_ones for node in step)]
    return inner


def _find_property(schema: JsonObject, part: str) -> list[JsonValue] | str:
    properties, rest = schema.get("properties"), schema.get("additionalProperties")
    named = properties if isinstance(properties, dict) else {}
    if part in named:
        return f'forbids "{part}"' if named[part] is False else [named[part]]
    if rest is False and not schema.get("patternProperties"):
        return f'is closed and has no "{part}"' if named else "is an object that allows no properties"
    return [rest] if isinstance(rest, dict) else []


def _find_item(schema: JsonObject, index: int) -> list[JsonValue]:
    listed, others = schema.get("prefixItems"), schema.get("items", True)
    if isinstance(others, list):  # as draft 7 has it
        listed, others = others, schema.get("additionalItems", True)
    return [listed[index] if isinstance(listed, list) and index < len(listed) else others]


def _takes_text(schema: JsonValue, words: tuple[str, ...]) -> bool:
    if not isinstance(schema, dict):
        return schema is not False
    kinds, values = schema.get("type", "string"), schema.get("enum", [schema["const"]] if "const" in schema else None)
    if kinds != "string" and not (isinstance(kinds, list) and "string" in kinds):
        return False
    texts = [value for value in values if isinstance(value, str)] if isinstance(values, list) else list(words)
    if isinstance(values, list) and not (set(texts) & set(words) if words else texts):
        return False
    options = [schema.get(key) for key in ("anyOf", "oneOf")]
    members = schema.get("allOf")
    return all(
        any(_takes_text(one, words) for one in option) for option in options if isinstance(option, list) and option
    ) and all(_takes_text(one, words) for one in (members if isinstance(members, list) else ()))
