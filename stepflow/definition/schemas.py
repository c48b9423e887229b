"""Find the answer schemas of an agent, make them self-contained, and check them."""

from __future__ import annotations

import json
import posixpath
import re
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from operator import truediv
from urllib.parse import unquote

from stepflow.definition.diagnostics import LIKE_PATHS, FileProblems, did_you_mean, format_value, list_words, owner
from stepflow.definition.folder import AgentFolder, FileRefused, Why, register_document, report_fault, unsafe_reason
from stepflow.definition.parsing import JsonFault, Pointer, node_at, parse_json
from stepflow.definition.shapes import note_unknown
from stepflow.domain.json import JsonObject, JsonValue, compact
from stepflow.engine.gate import PatternFault, check_pattern
from stepflow.engine.subschemas import walk

MAX_NODES = 20_000
MAX_DEPTH = 50
DRAFT_07 = "http://json-schema.org/draft-07/schema"
DRAFT_2020_12 = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS = {
    DRAFT_07: DRAFT_07,
    DRAFT_07.replace("http:", "https:"): DRAFT_07,
    DRAFT_2020_12: DRAFT_2020_12,
    DRAFT_2020_12.replace("https:", "http:"): DRAFT_2020_12,
}


@dataclass(frozen=True, kw_only=True)
class SchemaLocation:
    """A node of a schema file; `/` goes on to a member or an item. `file` is relative to the agent folder."""

    file: str
    pointer: Pointer = field(default_factory=Pointer)
    node: JsonValue

    def __truediv__(self, key: str | int) -> SchemaLocation:
        inner = self.node[key]  # type: ignore[index]  # who leads on has looked
        return SchemaLocation(file=self.file, pointer=self.pointer / key, node=inner)


@dataclass(eq=False)
class SchemaFault(Exception):
    """What is wrong with a schema. `at` says where, if that is not the place that refers to the schema.

    `fault` says why a file is not JSON.
    """

    code: str
    message: str
    fix: str
    at: SchemaLocation | None = None
    fault: JsonFault | None = None


@dataclass(kw_only=True)
class SchemaFolder:
    """Finds schemas below one base folder and reports what is wrong; parses each file and resolves each place once.

    `default` is the file that a plain pointer points into; `registry` collects problems of the references.
    """

    folder: AgentFolder
    base: str
    default: str | None
    agent_id: str
    registry: FileProblems
    _parsed: dict[str, JsonValue] = field(default_factory=dict)
    _inline: dict[str, Pointer] = field(default_factory=dict)
    _done: dict[tuple[str, str], JsonObject | None] = field(default_factory=dict)
    _reported: set[tuple[str, str, str]] = field(default_factory=set)

    def by_ref(self, ref: JsonValue, at: Pointer) -> JsonObject | None:
        """The answer schema that the `outputSchemaRef` at pointer `at` names; None after a problem."""
        if isinstance(ref, dict):
            known = ["file", "schema"]
            for key in ref.keys() - set(known):
                note_unknown(at / key, key, known, self.registry)
        try:
            location = self._find(ref)
        except SchemaFault as fault:
            self._report(fault, at)
            return None
        here = (location.file, location.pointer)
        if here not in self._done:
            self._done[here] = self._resolve(location, at)
        return self._done[here]

    def inline(self, schema: JsonObject, at: Pointer) -> JsonObject | None:
        """An answer schema in the registry itself; its references are relative to the schemas base."""
        path = self._path(f"#{len(self._inline)}")  # no reference can name this
        self._parsed[path] = schema
        self._inline[path] = at
        return self._resolve(SchemaLocation(file=path, node=schema), at)

    def load(self, path: str) -> JsonValue:
        """The parsed content of a schema file. Raises `SchemaFault`."""
        if path not in self._parsed:
            self._parsed[path] = self._parse(path)
        return self._parsed[path]

    def add(self, code: str, at: SchemaLocation, message: str, fix: str) -> None:
        """Report a problem at a node, also of a schema in the registry itself."""
        problems, pointer = self._place_written(at)
        problems.add(code, pointer, message, fix)

    def _place_written(self, at: SchemaLocation) -> tuple[FileProblems, str]:
        if at.file in self._inline:
            return self.registry.diagnostics.of(self.registry.file), self._inline[at.file] + at.pointer
        return self.registry.diagnostics.of(at.file), at.pointer

    def _report(self, fault: SchemaFault, at: Pointer) -> None:
        message = f"{owner(at)}{fault.message}"
        if fault.at is None:
            self.registry.add(fault.code, at, message, fault.fix)
            return
        problems, pointer = self._place_written(fault.at)
        place = (fault.code, problems.file, pointer)
        if place in self._reported:  # several steps may meet the same fault
            return
        self._reported.add(place)
        if fault.fault is not None:
            report_fault(self.folder.read(fault.at.file), fault.fault, problems, fault.code, message)
        else:
            problems.add(fault.code, pointer, message, fault.fix)

    def _find(self, ref: JsonValue) -> SchemaLocation:
        match ref:
            case str() if ref.startswith("#/"):
                return self._by_name(self._default_path(), ref)
            case str():
                raise _bad_form(f'the text "{ref}" does not begin with "#/"', '"#/definitions/<id>"')
            case {"file": str(file), "schema": str(name)} if file.strip():
                return self._by_name(self._safe_path(file), name)
            case _:
                raise _bad_form('it needs "file" and "schema", both strings', '{"file": …, "schema": …}')

    def _by_name(self, path: str, name: str) -> SchemaLocation:
        document = self.load(path)
        pointer = _bare(document, name) if name and name[0] not in "#/" else pointer_of(name)
        if pointer is None:
            raise _bad_form(f'the identifier "{name}" is malformed', 'a name, or a pointer such as "#/definitions/x"')
        node = node_at(document, pointer)
        if not isinstance(node, dict):
            raise _not_found(document, name, path, there=node is not None)
        return SchemaLocation(file=path, pointer=pointer, node=node)

    def _default_path(self) -> str:
        if self.default is not None:
            return self._safe_path(self.default)
        names = self.folder.json_files(self.base)
        own = f"{self.agent_id}.schema.json"
        if len(names) == 1:
            return self._path(names[0])
        if own in names:
            return self._path(own)
        message = f'a pointer needs a default schema file, and "{self.base}" has {len(names)} JSON files, none "{own}"'
        raise SchemaFault("SF404", message, 'Set "runner.flow.schemas.default", or use the {file, schema} form.')

    def _safe_path(self, file: str) -> str:
        if reason := unsafe_reason(file):
            message = f'the schema file "{file}" {reason}'
            raise SchemaFault("SF109", message, "Name a JSON file inside the schemas folder.")
        return self._path(file)

    def _path(self, file: str) -> str:
        return file if self.base == "." else f"{self.base}/{file}"

    def _parse(self, path: str) -> JsonValue:
        try:
            text = self.folder.read(path)
            document = parse_json(text)
        except FileRefused as refused:
            names = self.folder.json_files(self.base)
            fix = f'Name a JSON file inside the schemas folder; "{self.base}" has {list_words(names)}.'
            own = path.removeprefix(self._path(""))
            hint = did_you_mean(own, names, LIKE_PATHS) if refused.why is Why.MISSING else ""
            message = f'the schema file "{path}" {refused.message}{hint}'
            raise SchemaFault("SF109" if refused.unsafe else "SF401", message, fix) from refused
        except JsonFault as fault:
            message = f'the schema file "{path}" {fault.message}'
            at = SchemaLocation(file=path, node=None)
            raise SchemaFault("SF401", message, "Write valid JSON.", at=at, fault=fault) from fault
        register_document(text, self.registry.diagnostics.of(path))
        return document

    def _resolve(self, location: SchemaLocation, at: Pointer) -> JsonObject | None:
        draft = self._draft(location.file)
        target = (location.file, location.pointer)
        try:
            return _check_schema(_Expansion(schemas=self, draft=draft).schema(location, (target,)), location, draft)
        except SchemaFault as fault:
            self._report(fault, at)
            return None

    def _draft(self, file: str) -> str:
        root = self.load(file)
        written = root.get("$schema", DRAFT_2020_12) if isinstance(root, dict) else DRAFT_2020_12
        draft = _DRAFTS.get(written.removesuffix("#")) if isinstance(written, str) else None
        if draft is None:
            message = f'"$schema" is {format_value(written)}, which is not known; the schema is read as 2020-12'
            fix = f'Write "{DRAFT_2020_12}" or "{DRAFT_07}#".'
            self.add("SF408", SchemaLocation(file=file, node=root) / "$schema", message, fix)
        return draft or DRAFT_2020_12


def _not_found(document: JsonValue, name: str, path: str, *, there: bool) -> SchemaFault:
    """A schema that is not in the file; a bare name is compared with its names, a pointer with their pointers."""
    holders = {key: node_at(document, f"/{key}") for key in ("definitions", "$defs")}
    names = {key: list(one) for key, one in holders.items() if isinstance(one, dict)}
    known = [one for each in names.values() for one in each]
    if name.startswith(("#", "/")):
        sign = "#" if name.startswith("#") else ""
        known = [sign + Pointer(f"/{key}") / one for key, each in names.items() for one in each]
    message = f'the schema "{name}" {"is not an object" if there else "is not there"} in "{path}"'
    message += did_you_mean(name, known, LIKE_PATHS)
    fix = f"Correct the identifier, or add the schema to the file; it has {list_words(known)}."
    return SchemaFault("SF403", message, fix)


def pointer_of(name: str) -> Pointer | None:
    """The JSON Pointer in `#/a/b` or `/a/b`, empty for the whole file (`#/`); None when it is malformed."""
    if name == "#/":
        return Pointer()
    pointer = name.removeprefix("#")
    if not pointer.startswith("/") or "" in pointer.split("/")[1:]:
        return None
    return Pointer(pointer)


def _bare(document: JsonValue, name: str) -> Pointer:
    for container in ("definitions", "$defs"):
        pointer = Pointer(f"/{container}") / name
        if node_at(document, pointer) is not None:
            return pointer
    return Pointer() / name


def _bad_form(reason: str, form: str) -> SchemaFault:
    return SchemaFault("SF402", f'"outputSchemaRef" is malformed: {reason}', f"Write {form}.")


#: A member of `allOf` with only these keys is merged.
_PLAIN = frozenset(
    {"type", "title", "description", "$comment", "$schema", "$id", "properties", "required", "additionalProperties"}
    | {"default", "examples", "$defs", "definitions"}
)

#: Keywords that may declare properties elsewhere than among the object's own.
_MORE_PROPERTIES = frozenset({"allOf", "anyOf", "oneOf", "patternProperties", "if", "then", "else"})

#: Resolving never uses them, and in expanded schemas they would only mislead a validator.
_IDENTITY = frozenset({"$schema", "$id", "$anchor", "$dynamicAnchor"})

#: The targets of the references that are being expanded.
_Path = tuple[tuple[str, str], ...]


@dataclass(kw_only=True)
class _Expansion:
    """One expansion; it counts what it creates, so that nested references cannot grow without end."""

    schemas: SchemaFolder
    draft: str
    nodes: int = 0
    depth: int = 0

    def schema(self, here: SchemaLocation, path: _Path) -> JsonValue:
        """The schema at a place, made self-contained. Raises `SchemaFault`."""
        if not isinstance(here.node, dict):
            return self.copy_node(here)
        self.count(1, here)
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _too_large(f"is nested deeper than {MAX_DEPTH} schemas", here)
        expanded = self.object(here.node, here, path)
        self.depth -= 1
        return expanded

    def object(self, node: JsonObject, here: SchemaLocation, path: _Path) -> JsonValue:
        if "$dynamicRef" in node:
            raise _refusal(
                f'"$dynamicRef" ({format_value(node["$dynamicRef"])}) is not supported', here / "$dynamicRef"
            )
        if "$ref" in node:
            return self.follow_reference(node, here, path)
        own = walk(
            node,
            lambda _, place: self.schema(reduce(truediv, place, here), path),
            lambda _, key: self.copy_node(here / key),
        )
        merged = _merged_members({key: value for key, value in own.items() if key not in _IDENTITY})
        self.check_required(node, merged, here)
        return merged

    def check_required(self, node: JsonObject, merged: JsonObject, here: SchemaLocation) -> None:
        """Report required keys that are not properties (SF410), unless another part of the schema may declare them."""
        properties, required = merged.get("properties"), node.get("required")
        if "/allOf/" in here.pointer or not merged.keys().isdisjoint(_MORE_PROPERTIES):
            return
        if not isinstance(properties, dict) or not isinstance(required, list):
            return
        for index, name in enumerate(required):
            if isinstance(name, str) and name not in properties:
                message = f'the key "{name}" is required but not a property{did_you_mean(name, properties)}'
                fix = f"Add it to the properties, or require one of them; they are {list_words(properties)}."
                self.schemas.add("SF410", here / "required" / index, message, fix)

    def follow_reference(self, node: JsonObject, here: SchemaLocation, path: _Path) -> JsonValue:
        location = self.target(here / "$ref")
        target = (location.file, location.pointer)
        if target in path:
            message = f'the "$ref" to "{node["$ref"]}" leads back into itself'
            fix = "Write the nested part out as deep as it is needed: an answer schema cannot be endless."
            raise SchemaFault("SF406", message, fix, at=here / "$ref")
        schema = self.schema(location, (*path, target))
        rest = {key: value for key, value in node.items() if key != "$ref"}
        if self.draft == DRAFT_07 or not rest or schema is False:
            return schema
        own = self.schema(replace(here, node=rest), path)
        return merge([one for one in (schema, own) if isinstance(one, dict)])

    def target(self, here: SchemaLocation) -> SchemaLocation:
        """Where the `$ref` at a place points."""
        ref = here.node
        if not isinstance(ref, str):
            raise _refusal(f'"$ref" is {format_value(ref)}, but it must be a string', here)
        name, hash_, fragment = (unquote(part) for part in ref.partition("#"))
        if not name and not hash_:
            raise _refusal('"$ref" is empty', here)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:|//", name) or (name and unsafe_reason(name) is not None):
            raise _refusal(f'"$ref" is "{ref}", but only files inside the schemas folder can be referred to', here)
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here.file), name)) if name else here.file
        pointer = pointer_of(f"#{fragment}") if fragment else Pointer()
        if pointer is None:
            raise _refusal(f'"$ref" is "{ref}", and what follows "#" is not a JSON Pointer', here)
        try:
            node = node_at(self.schemas.load(path), pointer)
        except SchemaFault as fault:
            fault.at = fault.at or here
            raise
        if not isinstance(node, dict | bool):
            message = f'"$ref" leads to "{ref}", where no schema is'
            raise SchemaFault("SF403", message, "Correct the pointer, or add the schema.", at=here)
        return SchemaLocation(file=path, pointer=pointer, node=node)

    def copy_node(self, here: SchemaLocation) -> JsonValue:
        self.count(_size(here.node), here)
        return here.node

    def count(self, nodes: int, here: SchemaLocation) -> None:
        self.nodes += nodes
        if self.nodes > MAX_NODES:
            raise _too_large(f"has more than {MAX_NODES} nodes", here)


def merge(schemas: list[JsonObject]) -> JsonObject:
    """Merge schemas: `required` and `properties` are united; for any other keyword the later schema wins."""
    merged: JsonObject = {}
    for schema in schemas:
        for key, value in schema.items():
            present = merged.get(key)
            if key == "required" and isinstance(present, list) and isinstance(value, list):
                merged[key] = [*present, *(name for name in value if name not in present)]
            elif key == "properties" and isinstance(present, dict) and isinstance(value, dict):
                merged[key] = {**present, **value}
            else:
                merged[key] = value
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


def _size(value: JsonValue) -> int:
    match value:
        case dict():
            return 1 + sum(_size(item) for item in value.values())
        case list():
            return 1 + sum(_size(item) for item in value)
        case _:
            return 1


def _refusal(message: str, at: SchemaLocation) -> SchemaFault:
    fix = 'Use "#/pointer", "file.json" or "file.json#/pointer", inside the schemas folder.'
    return SchemaFault("SF405", message, fix, at=at)


def _too_large(state: str, at: SchemaLocation) -> SchemaFault:
    return SchemaFault("SF407", f"the schema {state} when all references are put in", "Make the schema smaller.", at=at)


def _check_schema(schema: JsonValue, location: SchemaLocation, draft: str) -> JsonObject:
    """The schema, if it is valid for its draft and describes an object; with the draft's name if that is draft-07."""
    if message := _validity_problem(compact(schema), draft):
        raise SchemaFault("SF407", message, "Correct it.", at=location)
    if not isinstance(schema, dict) or not _describes_object(schema):
        message = 'the root of the answer schema does not describe an object ("type": "object")'
        fix = 'Give the schema "type": "object".'
        raise SchemaFault("SF409", message, fix, at=location)
    return {"$schema": f"{DRAFT_07}#", **schema} if draft == DRAFT_07 else schema


@lru_cache(maxsize=256)
def _validity_problem(text: str, draft: str) -> str:
    """Say what makes a schema invalid; empty if it is valid. Kept: a run loads its agent twice."""
    # Importing jsonschema takes a tenth of a second, which `--help` and friends must not pay.
    from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker  # noqa: PLC0415

    validator = Draft7Validator if draft == DRAFT_07 else Draft202012Validator
    formats = FormatChecker(validator.FORMAT_CHECKER.checkers)
    formats.checks("regex", raises=PatternFault)(_is_pattern)
    errors = validator(validator.META_SCHEMA, format_checker=formats).iter_errors(json.loads(text))
    if first := min(
        errors, key=lambda error: ([str(part) for part in error.absolute_path], error.message), default=None
    ):
        where = "/".join(str(part) for part in first.absolute_path)
        return f"the answer schema is not valid{f' at {where}' if where else ''}: {first.message[:200]}"
    return ""


def _is_pattern(value: object) -> bool:
    if isinstance(value, str):
        check_pattern(value)
    return True


def _describes_object(schema: JsonValue) -> bool:
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    if kind is not None:
        return kind in ("object", ["object"])
    if "properties" in schema:
        return True
    branches = [schema.get(key) for key in ("anyOf", "oneOf")]
    every = any(isinstance(one, list) and one and all(_describes_object(item) for item in one) for one in branches)
    members = schema.get("allOf")
    return every or (isinstance(members, list) and any(_describes_object(item) for item in members))
