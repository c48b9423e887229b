"""What an answer that is valid under its schema can have at a dotted path."""

from __future__ import annotations

import re
from dataclasses import dataclass

from stepflow.domain.json import JsonObject, JsonValue

#: Schemas that must all hold.
_All = tuple[JsonObject, ...]
#: A schema with more alternatives is not followed.
_MOST = 200


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a valid answer can have at a path. `nodes` are the schemas that describe it.

    `blocked` says why nothing can be there, and is empty otherwise. `undeclared` says that something can be there
    although the schema does not name it: a service that enforces the schema would let nothing through.
    """

    nodes: tuple[JsonObject, ...] = ()
    blocked: str = ""
    undeclared: str = ""
    alternatives: tuple[_All, ...] = ()

    def takes_text(self, words: tuple[str, ...] = ()) -> bool:
        """Whether a string can be there: one of these words, if any are given."""
        return any(_takes_text(schemas, words) for schemas in self.alternatives)


class _TooMany(Exception):
    """The schema has too many alternatives to follow."""


def look_into(schema: JsonObject, path: str) -> Held:
    """What valid answers can have at a dotted path."""
    try:
        alternatives, undeclared, walked = _expand(schema), "", ""
        for part in path.split("."):
            steps = [_step(schemas, part) for schemas in alternatives]
            reasons = [step for step in steps if isinstance(step, str)]
            inner = [step for step in steps if not isinstance(step, str)]
            where = f'"{walked}"' if walked else "the answer"
            if not inner:
                return Held(blocked=f"{where} {reasons[0]}" if reasons else f"{where} can have no value")
            if not undeclared and not any(inner):
                undeclared = f'{where} does not declare "{part}"'
            walked = f"{walked}.{part}" if walked else part
            alternatives = [one for schemas in inner for one in _combine(schemas)]
            if not alternatives:
                return Held(blocked=f'"{walked}" can have no value')
        nodes = tuple(node for schemas in alternatives for node in schemas)
        return Held(nodes=nodes, undeclared=undeclared, alternatives=tuple(alternatives))
    except _TooMany:
        return Held(alternatives=((),))


def _combine(schemas: tuple[JsonValue, ...]) -> list[_All]:
    """The alternatives of schemas that must all hold."""
    combined: list[_All] = [()]
    for schema in schemas:
        combined = [(*one, *other) for one in combined for other in _expand(schema)]
        if len(combined) > _MOST:
            raise _TooMany
    return combined


def _expand(schema: JsonValue) -> list[_All]:
    """The alternatives that a schema allows; `if` is ignored."""
    if not isinstance(schema, dict):
        return [] if schema is False else [()]
    if schema.get("not") in (True, {}):
        return []
    members = schema.get("allOf")
    combined = [(schema, *one) for one in _combine(tuple(members if isinstance(members, list) else ()))]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            choices = [one for option in options for one in _expand(option)]
            combined = [(*one, *other) for one in combined for other in choices]
        if len(combined) > _MOST:
            raise _TooMany
    return combined


def _step(schemas: _All, part: str) -> tuple[JsonValue, ...] | str:
    """The schemas of one part of what these describe, empty when none of them names it; or why it cannot exist."""
    inner: list[JsonValue] = []
    for schema in schemas:
        is_item = part.isdecimal() and _allows_type(schema, "array") and not _allows_type(schema, "object")
        if not is_item and not _allows_type(schema, "object"):
            return f"is {_type_words(schema)}, which has no parts"
        values = _values(schema)
        if values is not None and not any(isinstance(value, dict) and part in value for value in values):
            return f'can have no "{part}"'
        if is_item:
            inner.append(_item(schema, int(part)))
            continue
        if not _allows_name(schema, part):
            return f'allows no property of the name "{part}"'
        named = _schemas_of(schema, part)
        if schema.get("maxProperties") == 0 or (named == [False] and not schema.get("properties")):
            return "is an object that allows no properties"
        if False in named:
            return (
                f'forbids "{part}"' if part in _object(schema.get("properties")) else f'is closed and has no "{part}"'
            )
        inner += named
    is_closed = any(schema.get("unevaluatedProperties") is False for schema in schemas)
    return f'is closed and has no "{part}"' if is_closed and not inner else tuple(inner)


def _schemas_of(schema: JsonObject, part: str) -> list[JsonValue]:
    """What a schema says about a property; empty when it says nothing."""
    properties, patterns = _object(schema.get("properties")), _object(schema.get("patternProperties"))
    named = [properties[part]] if part in properties else []
    named += [inner for pattern, inner in patterns.items() if _matches(pattern, part)]
    rest = schema.get("additionalProperties")
    return named or ([rest] if isinstance(rest, dict) or rest is False else [])


def _item(schema: JsonObject, index: int) -> JsonValue:
    """What an array's schema says about one item; False when there cannot be one."""
    most, listed, others = schema.get("maxItems"), schema.get("prefixItems"), schema.get("items", True)
    if isinstance(most, int) and index >= most:
        return False
    if isinstance(others, list):  # as draft 7 has it
        listed, others = others, schema.get("additionalItems", True)
    return listed[index] if isinstance(listed, list) and index < len(listed) else others


def _allows_name(schema: JsonObject, part: str) -> bool:
    names = schema.get("propertyNames", True)
    return any(_takes_text(schemas, (part,)) for schemas in _expand(names))


def _matches(pattern: str, part: str) -> bool:
    try:
        return re.search(pattern, part) is not None
    except re.error:
        return True


def _values(schema: JsonObject) -> list[JsonValue] | None:
    """The only values that a schema allows, if it lists them."""
    values = schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else None
    return values if isinstance(values, list) else None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _allows_type(schema: JsonObject, kind: str) -> bool:
    written = schema.get("type")
    return written is None or written == kind or (isinstance(written, list) and kind in written)


def _type_words(schema: JsonObject) -> str:
    written = schema.get("type")
    return " or ".join(map(str, written)) if isinstance(written, list) else f"of the type {written}"


def _takes_text(schemas: _All, words: tuple[str, ...]) -> bool:
    for schema in schemas:
        values = _values(schema)
        texts = [value for value in values if isinstance(value, str)] if values is not None else None
        if not _allows_type(schema, "string") or texts == []:
            return False
        if texts is not None and words and not set(texts) & set(words):
            return False
    return True
