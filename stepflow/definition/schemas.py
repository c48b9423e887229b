"""The answer schemas of an agent (registry.md §8).

Takes: every `outputSchemaRef` of the registry. Gives: resolved schemas, or problems SF401 to SF409.
May touch: reads the agent's schema files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stepflow.definition.documents import report_fault
from stepflow.definition.findings import shown
from stepflow.definition.json_text import child
from stepflow.definition.schema_expand import DRAFT_07, DRAFT_2020_12, expand
from stepflow.definition.schema_refs import SchemaFault, SchemaPlace
from stepflow.definition.shapes import note_unknown, owner

if TYPE_CHECKING:
    from stepflow.definition.findings import FileFindings
    from stepflow.definition.schema_refs import SchemaFiles
    from stepflow.domain.json import JsonObject, JsonValue


@dataclass(kw_only=True)
class SchemaDesk:
    """Resolves schemas and reports what is wrong; each place is resolved once."""

    files: SchemaFiles
    registry: FileFindings
    _done: dict[tuple[str, str], JsonObject | None] = field(default_factory=dict)
    _reported: set[tuple[str, str, str]] = field(default_factory=set)

    def by_ref(self, ref: JsonValue, at: str) -> JsonObject | None:
        """The answer schema that the `outputSchemaRef` at pointer `at` names; None after a problem was reported."""
        if isinstance(ref, dict):
            known = ["file", "schema"]
            for key in ref.keys() - set(known):
                note_unknown(child(at, key), key, known, self.registry)
        try:
            place = self.files.find(ref)
        except SchemaFault as fault:
            self._report(fault, at)
            return None
        here = (place.file, place.pointer)
        if here not in self._done:
            self._done[here] = self._resolve(place, at)
        return self._done[here]

    def inline(self, schema: JsonObject, at: str) -> JsonObject | None:
        """An answer schema that stands in the registry itself."""
        return self._resolve(self.files.inline(schema, self.registry.file, at), at)

    def _resolve(self, place: SchemaPlace, at: str) -> JsonObject | None:
        draft = self._draft(place)
        try:
            return _checked(expand(self.files, place, draft=draft), place, draft)
        except SchemaFault as fault:
            self._report(fault, at)
            return None

    def _draft(self, place: SchemaPlace) -> str:
        root = self.files.load(place.file)
        written = root.get("$schema", DRAFT_2020_12) if isinstance(root, dict) else DRAFT_2020_12
        draft = _DRAFTS.get(written.removesuffix("#")) if isinstance(written, str) else None
        if draft is None:
            message = f'"$schema" is {shown(written)}, which is not known; the schema is read as 2020-12'
            file, pointer = self.files.written_at(place.file, "/$schema")
            fix = f'Write "{DRAFT_2020_12}" or "{DRAFT_07}#".'
            self.registry.findings.of(file).add("SF408", pointer, message, fix)
        return draft or DRAFT_2020_12

    def _report(self, fault: SchemaFault, at: str) -> None:
        message = f"{owner(at)}{fault.message}"
        if not fault.file:
            self.registry.add(fault.code, at, message, fault.fix)
            return
        file, pointer = self.files.written_at(fault.file, fault.pointer)
        if (fault.code, file, pointer) in self._reported:  # several steps may meet the same fault
            return
        self._reported.add((fault.code, file, pointer))
        found = self.registry.findings.of(file)
        if fault.fault is not None:
            report_fault(*fault.fault, found, fault.code, message)
        else:
            found.add(fault.code, pointer, message, fault.fix)


_DRAFTS = {
    DRAFT_07: DRAFT_07,
    DRAFT_07.replace("http:", "https:"): DRAFT_07,
    DRAFT_2020_12: DRAFT_2020_12,
    DRAFT_2020_12.replace("https:", "http:"): DRAFT_2020_12,
}


def _checked(schema: JsonValue, place: SchemaPlace, draft: str) -> JsonObject:
    """The schema when it is valid for its draft and describes an object; with the draft's name if that is draft-07."""
    _check_valid(schema, place, draft)
    if not isinstance(schema, dict) or not _describes_object(schema):
        message = 'the root of the answer schema does not describe an object ("type": "object")'
        fix = 'Give the schema "type": "object".'
        raise SchemaFault("SF409", message, fix, file=place.file, pointer=place.pointer)
    return {"$schema": f"{DRAFT_07}#", **schema} if draft == DRAFT_07 else schema


def _check_valid(schema: JsonValue, place: SchemaPlace, draft: str) -> None:
    # Importing jsonschema takes a tenth of a second, which `--help` and friends must not pay.
    from jsonschema import Draft7Validator, Draft202012Validator, FormatChecker, SchemaError  # noqa: PLC0415

    from stepflow.patterns import PatternFault  # noqa: PLC0415

    validator = Draft7Validator if draft == DRAFT_07 else Draft202012Validator
    formats = FormatChecker(validator.FORMAT_CHECKER.checkers)
    formats.checks("regex", raises=PatternFault)(_is_pattern)
    try:
        validator.check_schema(schema, format_checker=formats)  # type: ignore[arg-type]
    except SchemaError as exc:
        where = "/".join(str(part) for part in exc.absolute_path)
        message = f"the answer schema is not valid{f' at {where}' if where else ''}: {exc.message[:200]}"
        raise SchemaFault("SF407", message, "Correct it.", file=place.file, pointer=place.pointer) from exc


def _is_pattern(value: object) -> bool:
    from stepflow.patterns import check_pattern  # noqa: PLC0415

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
