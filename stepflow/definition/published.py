"""JSON Schemas of our file formats, for editors and for the reference page; descriptions come from `fields.yaml`."""

from __future__ import annotations

from typing import cast

from stepflow.definition.file_models import AgentFile, CheckRegistry, GateRegistry
from stepflow.definition.shapes import FieldNote, FileModel, field_notes
from stepflow.domain.json import JsonObject, JsonValue

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def agent_schema() -> JsonObject:
    """JSON Schema of `agent.json`, in the layout of today."""
    return _published(AgentFile, "A stepflow agent (agent.json)")


def registry_schema() -> JsonObject:
    """JSON Schema of `steps_registry.json` in either dialect: what a step has tells which (registry.md §3)."""
    gates, checks = gate_schema(), check_schema()
    definitions = {**cast("JsonObject", checks.pop("$defs")), **cast("JsonObject", gates.pop("$defs"))}
    marks: JsonValue = [{"required": [key]} for key in ("check", "prompt", "iterations")]
    steps: JsonObject = {"additionalProperties": {"not": {"anyOf": marks}}}
    return {
        "$schema": DRAFT,
        "title": "A stepflow step registry (steps_registry.json)",
        "if": {"properties": {"steps": steps, "basePath": False}},
        "then": _inner(gates),
        "else": _inner(checks),
        "$defs": definitions,
    }


def gate_schema() -> JsonObject:
    """JSON Schema of a registry with gates."""
    return _published(GateRegistry, "A step registry with gates")


def check_schema() -> JsonObject:
    """JSON Schema of a registry with checks."""
    return _published(CheckRegistry, "A step registry with checks")


def _inner(schema: JsonObject) -> JsonObject:
    return {key: value for key, value in schema.items() if key != "$schema"}


def _published(model: type[FileModel], title: str) -> JsonObject:
    schema = cast("JsonObject", model.model_json_schema())
    definitions = cast("dict[str, JsonObject]", schema.pop("$defs"))
    for name, definition in {model.__name__: schema, **definitions}.items():
        _describe(name, definition)
    address: JsonObject = {"type": "string", "description": "Address of this schema, for editors."}
    properties = cast("JsonObject", schema["properties"])
    return {
        **{"$schema": DRAFT, "title": title, **schema},
        "properties": {"$schema": address, **properties},
        "$defs": cast("JsonValue", definitions),
    }


def _describe(name: str, definition: JsonObject) -> None:
    """Put the notes in, and take out what only says how the models are built."""
    definition.pop("title", None)
    definition.pop("description", None)
    notes = field_notes().get(name, {})
    for key, schema in cast("dict[str, JsonObject]", definition.get("properties") or {}).items():
        schema.pop("title", None)
        if isinstance(schema.get("default"), dict):
            del schema["default"]
        if key in notes:
            schema["description"] = _plain(notes[key])


def _plain(note: FieldNote) -> str:
    return f"{note.text} Left out: {note.otherwise}." if note.otherwise else note.text
