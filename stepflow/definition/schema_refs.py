"""Where an answer schema stands (registry.md §8.1).

Takes: `outputSchemaRef` as written. Gives: the schema file and the place in it, or problems SF401 to SF404.
May touch: reads the agent's schema files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.definition.documents import take_document
from stepflow.definition.findings import LIKE_PATHS, did_you_mean, listed
from stepflow.definition.folder import FaultKind, FileFault, unsafe_reason
from stepflow.definition.json_text import JsonFault, child, keys_of, parse_json

if TYPE_CHECKING:
    from stepflow.definition.findings import Findings
    from stepflow.definition.folder import AgentFolder
    from stepflow.domain.json import JsonObject, JsonValue


class SchemaFault(Exception):
    """What is wrong with a schema. `file` and `pointer` say where, when that is not where the schema was asked for.

    `fault` is the text of a file that is no JSON, and why not.
    """

    def __init__(
        self,
        code: str,
        message: str,
        fix: str,
        *,
        file: str = "",
        pointer: str = "",
        fault: tuple[str, JsonFault] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.fix = fix
        self.file = file
        self.pointer = pointer
        self.fault = fault


@dataclass(frozen=True, kw_only=True)
class SchemaPlace:
    """A node of a schema file. `file` is relative to the agent folder."""

    file: str
    pointer: str
    node: JsonValue


@dataclass(kw_only=True)
class SchemaFiles:
    """The schema files below one base folder, each parsed once."""

    folder: AgentFolder
    base: str
    findings: Findings
    default: str | None
    agent_id: str
    _parsed: dict[str, JsonValue] = field(default_factory=dict)
    _inline: dict[str, tuple[str, str]] = field(default_factory=dict)

    def find(self, ref: JsonValue) -> SchemaPlace:
        """The place that an `outputSchemaRef` names. Raises `SchemaFault`."""
        match ref:
            case str():
                return self._by_pointer(ref)
            case {"file": str(file), "schema": str(name)} if file.strip():
                path = self._safe_path(file)
                return self._by_name(path, self.load(path), name)
            case _:
                raise _malformed('it needs "file" and "schema", both texts', '{"file": …, "schema": …}')

    def inline(self, schema: JsonObject, file: str, at: str) -> SchemaPlace:
        """A schema that stands in another file, at a pointer; its references are relative to the schemas base."""
        path = self.path(f"#{len(self._inline)}")  # no reference can name this
        self._parsed[path] = schema
        self._inline[path] = (file, at)
        return SchemaPlace(file=path, pointer="", node=schema)

    def written_at(self, file: str, pointer: str) -> tuple[str, str]:
        """The real file and pointer of a place, which differ from the given ones for an inline schema."""
        real, prefix = self._inline.get(file, (file, ""))
        return real, prefix + pointer

    def path(self, file: str) -> str:
        """A file of the schemas base, relative to the agent folder."""
        return file if self.base == "." else f"{self.base}/{file}"

    def load(self, path: str) -> JsonValue:
        """The parsed content of a schema file. Raises `SchemaFault`."""
        if path not in self._parsed:
            self._parsed[path] = self._parse(path)
        return self._parsed[path]

    def _safe_path(self, file: str) -> str:
        if reason := unsafe_reason(file):
            message = f'the schema file "{file}" {reason}'
            raise SchemaFault("SF109", message, "Name a JSON file inside the schemas folder.")
        return self.path(file)

    def _parse(self, path: str) -> JsonValue:
        try:
            text = self.folder.read(path)
            document = parse_json(text)
        except FileFault as fault:
            raise self._unreadable(path, fault) from fault
        except JsonFault as fault:
            message = f'the schema file "{path}" {fault.message}'
            raise SchemaFault("SF401", message, "Write valid JSON.", file=path, fault=(text, fault)) from fault
        take_document(text, document, self.findings.of(path))
        return document.value

    def _unreadable(self, path: str, fault: FileFault) -> SchemaFault:
        code = "SF109" if fault.kind is FaultKind.UNSAFE else "SF401"
        names = self.folder.json_files(self.base)
        fix = f'Name a JSON file inside the schemas folder; "{self.base}" has {listed(names)}.'
        own = path.removeprefix("" if self.base == "." else f"{self.base}/")
        hint = did_you_mean(own, names, LIKE_PATHS) if fault.kind is FaultKind.MISSING else ""
        return SchemaFault(code, f'the schema file "{path}" {fault.message}{hint}', fix)

    def _by_pointer(self, ref: str) -> SchemaPlace:
        if not ref.startswith("#/"):
            raise _malformed(f'the text "{ref}" does not begin with "#/"', '"#/definitions/<id>"')
        path = self._default_path()
        return self._by_name(path, self.load(path), ref)

    def _default_path(self) -> str:
        if self.default is not None:
            return self._safe_path(self.default)
        names = self.folder.json_files(self.base)
        own = f"{self.agent_id}.schema.json"
        if len(names) == 1:
            return self.path(names[0])
        if own in names:
            return self.path(own)
        message = f'a pointer needs a default schema file, and "{self.base}" has {len(names)} JSON files, none "{own}"'
        raise SchemaFault("SF404", message, 'Set "runner.flow.schemas.default", or use the {file, schema} form.')

    def _by_name(self, path: str, document: JsonValue, name: str) -> SchemaPlace:
        pointer = _bare(document, name) if name and name[0] not in "#/" else pointer_of(name)
        if pointer is None:
            raise _malformed(f'the identifier "{name}" is malformed', 'a name, or a pointer such as "#/definitions/x"')
        found = node_at(document, pointer)
        if not isinstance(found, dict):
            raise _not_found(document, name, path, there=found is not None)
        return SchemaPlace(file=path, pointer=pointer, node=found)


def _not_found(document: JsonValue, name: str, path: str, *, there: bool) -> SchemaFault:
    """A bare name is held against the names of the file, a pointer against their pointers."""
    holders = {key: node_at(document, f"/{key}") for key in ("definitions", "$defs")}
    names = {key: list(one) for key, one in holders.items() if isinstance(one, dict)}
    known = [one for each in names.values() for one in each]
    if name.startswith(("#", "/")):
        sign = "#" if name.startswith("#") else ""
        known = [sign + child(f"/{key}", one) for key, each in names.items() for one in each]
    message = f'the schema "{name}" {"is not an object" if there else "is not there"} in "{path}"'
    message += did_you_mean(name, known, LIKE_PATHS)
    fix = f"Correct the identifier, or add the schema to the file; it has {listed(known)}."
    return SchemaFault("SF403", message, fix)


def pointer_of(name: str) -> str | None:
    """The JSON Pointer in `#/a/b` or `/a/b`, empty for the whole file (`#/`); None when it is malformed."""
    if name == "#/":
        return ""
    pointer = name.removeprefix("#")
    if not pointer.startswith("/") or "" in pointer.split("/")[1:]:
        return None
    return pointer


def node_at(document: JsonValue, pointer: str) -> JsonValue:
    """The value at a JSON Pointer; None when there is nothing."""
    node = document
    for key in keys_of(pointer):
        if isinstance(node, dict):
            node = node.get(key)
        elif isinstance(node, list) and key.isascii() and key.isdigit() and len(key) < 9 and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node


def _bare(document: JsonValue, name: str) -> str:
    for container in ("definitions", "$defs"):
        pointer = child(f"/{container}", name)
        if node_at(document, pointer) is not None:
            return pointer
    return child("", name)


def _malformed(reason: str, form: str) -> SchemaFault:
    return SchemaFault("SF402", f'"outputSchemaRef" is malformed: {reason}', f"Write {form}.")
