"""The JSON Schemas published of agent.json and the registries, for editors and for the reference page."""

from __future__ import annotations

from typing import cast

from stepflow.definition.check_dialect import CheckRegistry
from stepflow.definition.file_models import AgentFile, GateRegistry
from stepflow.definition.shapes import FileModel
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
    del gates["$schema"], checks["$schema"]
    return {
        "$schema": DRAFT,
        "title": "A stepflow step registry (steps_registry.json)",
        "if": {"properties": {"steps": steps, "basePath": False}},
        "then": gates,
        "else": checks,
        "$defs": definitions,
    }


def gate_schema() -> JsonObject:
    """JSON Schema of a registry with gates."""
    return _published(GateRegistry, "A step registry with gates")


def check_schema() -> JsonObject:
    """JSON Schema of a registry with checks."""
    return _published(CheckRegistry, "A step registry with checks")


def _published(model: type[FileModel], title: str) -> JsonObject:
    schema = model.model_json_schema()
    address: JsonObject = {"type": "string", "description": "Address of this schema, for editors."}
    schema["properties"] = {"$schema": address, **schema["properties"]}
    definitions = schema.pop("$defs")
    for each in (schema, *definitions.values()):  # which say how the models are built
        each.pop("title", None)
        each.pop("description", None)
    return {"$schema": DRAFT, "title": title, **schema, "$defs": definitions}
