"""A schema with every `$ref` put in and every plain `allOf` merged (registry.md §8.2).

Takes: a place in a schema file. Gives: one self-contained schema, or a `SchemaFault`.
May touch: reads the agent's schema files.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stepflow.definition.findings import shown
from stepflow.definition.folder import unsafe_reason
from stepflow.definition.json_text import child
from stepflow.definition.schema_refs import SchemaFault, SchemaPlace, node_at, pointer_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.definition.schema_refs import SchemaFiles
    from stepflow.domain.json import JsonObject, JsonValue

MAX_NODES = 20_000
MAX_DEPTH = 50
DRAFT_07 = "http://json-schema.org/draft-07/schema"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"

#: Keywords by what stands under them; everything else is copied as it is.
_ONE = frozenset(
    {"additionalItems", "contains", "additionalProperties", "propertyNames", "if", "then", "else", "not"}
    | {"unevaluatedItems", "unevaluatedProperties", "contentSchema", "items"}
)
_LIST = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})

#: A member of `allOf` with only these keys is merged.
_PLAIN = frozenset(
    {"type", "title", "description", "$comment", "$schema", "$id", "properties", "required", "additionalProperties"}
    | {"default", "examples", "$defs", "definitions"}
)

#: Resolving never uses them, and beside schemas that are put into each other they would only mislead a validator.
_IDENTITY = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor"})


def expand(files: SchemaFiles, place: SchemaPlace, *, draft: str) -> JsonValue:
    """The schema at a place, self-contained. Raises `SchemaFault`."""
    here = (place.file, place.pointer)
    return _Expansion(files=files, draft=draft).schema(place.node, place.file, place.pointer, (here,))


@dataclass(kw_only=True)
class _Expansion:
    """One expansion; it counts what it makes, so that no nest of references can grow without end."""

    files: SchemaFiles
    draft: str
    nodes: int = 0
    depth: int = 0

    def schema(self, node: JsonValue, file: str, at: str, path: tuple[tuple[str, str], ...]) -> JsonValue:
        """`path` holds the targets of the references that are being put in."""
        if not isinstance(node, dict):
            return self.copied(node, file, at)
        self.count(1, file, at)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _too_large(f"is nested deeper than {MAX_DEPTH} schemas", file, at)
        expanded = self.object(node, file, at, path)
        self.depth -= 1
        return expanded

    def object(self, node: JsonObject, file: str, at: str, path: tuple[tuple[str, str], ...]) -> JsonValue:
        if "$dynamicRef" in node:
            raise _refused(
                f'"$dynamicRef" ({shown(node["$dynamicRef"])}) is not supported', file, child(at, "$dynamicRef")
            )
        if "$ref" in node:
            return self.referred(node, file, at, path)
        own = {key: self.keyword(key, value, file, child(at, key), path) for key, value in node.items()}
        return _merged_members({key: value for key, value in own.items() if key not in _IDENTITY})

    def keyword(self, key: str, value: JsonValue, file: str, at: str, path: tuple[tuple[str, str], ...]) -> JsonValue:
        def inner(name: str | int, item: JsonValue) -> JsonValue:
            return self.schema(item, file, child(at, name), path)

        if key in _NAMED and isinstance(value, dict):
            return {name: inner(name, item) for name, item in value.items()}
        if key in _LIST and isinstance(value, list):
            return [inner(index, item) for index, item in enumerate(value)]
        if key in _ONE and isinstance(value, dict):
            return self.schema(value, file, at, path)
        return self.copied(value, file, at)

    def referred(self, node: JsonObject, file: str, at: str, path: tuple[tuple[str, str], ...]) -> JsonValue:
        target = self.target(node["$ref"], file, child(at, "$ref"))
        here = (target.file, target.pointer)
        if here in path:
            message = f'the "$ref" to "{node["$ref"]}" leads back into itself'
            fix = "Write the nested part out as deep as it is needed: an answer schema cannot be endless."
            raise SchemaFault("SF406", message, fix, file=file, pointer=child(at, "$ref"))
        schema = self.schema(target.node, target.file, target.pointer, (*path, here))
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if self.draft == DRAFT_07 or not rest or schema is False:
            return schema
        own = self.schema(rest, file, at, path)
        return merge([one for one in (schema, own) if isinstance(one, dict)])

    def target(self, ref: JsonValue, file: str, at: str) -> SchemaPlace:
        if not isinstance(ref, str):
            raise _refused(f'"$ref" is {shown(ref)}, but it must be a text', file, at)
        name, hash_, fragment = (unquote(part) for part in ref.partition("#"))
        if not name and not hash_:
            raise _refused('"$ref" is empty', file, at)
        path = self.file_of(name, file, at, ref) if name else file
        pointer = pointer_of(f"#{fragment}") if fragment else ""
        if pointer is None:
            raise _refused(f'"$ref" is "{ref}", and what follows "#" is no JSON Pointer', file, at)
        try:
            node = node_at(self.files.load(path), pointer)
        except SchemaFault as fault:
            if fault.file:
                raise
            raise SchemaFault(fault.code, fault.message, fault.fix, file=file, pointer=at) from fault
        if not isinstance(node, dict | bool):
            message = f'"$ref" leads to "{ref}", where no schema is'
            raise SchemaFault("SF403", message, "Correct the pointer, or add the schema.", file=file, pointer=at)
        return SchemaPlace(file=path, pointer=pointer, node=node)

    def file_of(self, name: str, file: str, at: str, ref: str) -> str:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", name) or unsafe_reason(name) is not None:
            raise _refused(f'"$ref" is "{ref}", but only files inside the schemas folder can be referred to', file, at)
        return posixpath.normpath(posixpath.join(posixpath.dirname(file), name))

    def copied(self, value: JsonValue, file: str, at: str) -> JsonValue:
        self.count(_size(value), file, at)
        return value

    def count(self, nodes: int, file: str, at: str) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _too_large(f"has more than {MAX_NODES} nodes", file, at)


def merge(schemas: list[JsonObject]) -> JsonObject:
    """Several schemas as one: `required` and `properties` are united, of any other keyword the later one counts."""
    merged: JsonObject = {}
    for schema in schemas:
        for key, value in schema.items():
            merged[key] = _UNIONS.get(key, _later)(merged.get(key), value)
    return merged


def _merged_members(schema: JsonObject) -> JsonObject:
    members = schema.get("allOf")
    if not isinstance(members, list):
        return schema
    plain = [one for one in members if isinstance(one, dict) and _PLAIN.issuperset(one)]
    rest = [one for one in members if not (isinstance(one, dict) and _PLAIN.issuperset(one))]
    own = {key: value for key, value in schema.items() if key != "allOf"}
    merged = merge([*plain, own])
    return {**merged, "allOf": rest} if rest or not members else merged


def _later(_earlier: JsonValue, later: JsonValue) -> JsonValue:
    return later


def _united_names(earlier: JsonValue, later: JsonValue) -> JsonValue:
    if not isinstance(earlier, list) or not isinstance(later, list):
        return later
    return [*earlier, *(name for name in later if name not in earlier)]


def _united_properties(earlier: JsonValue, later: JsonValue) -> JsonValue:
    return {**earlier, **later} if isinstance(earlier, dict) and isinstance(later, dict) else later


_UNIONS: dict[str, Callable[[JsonValue, JsonValue], JsonValue]] = {
    "required": _united_names,
    "properties": _united_properties,
}


def _size(value: JsonValue) -> int:
    match value:
        case dict():
            return 1 + sum(_size(item) for item in value.values())
        case list():
            return 1 + sum(_size(item) for item in value)
        case _:
            return 1


def _refused(message: str, file: str, pointer: str) -> SchemaFault:
    fix = 'Use "#/pointer", "file.json" or "file.json#/pointer", inside the schemas folder.'
    return SchemaFault("SF405", message, fix, file=file, pointer=pointer)


def _too_large(state: str, file: str, pointer: str) -> SchemaFault:
    message = f"the schema {state} when all references are put in"
    return SchemaFault("SF407", message, "Make the schema smaller.", file=file, pointer=pointer)
