"""The JSON Schemas of the file models, for editors and the reference page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from stepflow.definition.check_dialect import CheckRegistry
from stepflow.definition.file_models import AgentFile, GateRegistry
from stepflow.definition.shapes import field_notes, fields_of
from stepflow.domain.agent.agent_settings import NULL_ALLOWED, FileModel
from stepflow.domain.json import JsonObject, JsonValue

DRAFT = "https://json-schema.org/draft/2020-12/schema"


def agent_schema() -> JsonObject:
    """JSON Schema of `agent.json` in its current layout."""
    return _publish_model(AgentFile, "A stepflow agent (agent.json)")


def registry_schema() -> JsonObject:
    """JSON Schema of `steps_registry.json` in either dialect; the keys of a step decide which."""
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
    """JSON Schema of a registry in the gate dialect."""
    return _publish_model(GateRegistry, "A step registry with gates")


def check_schema() -> JsonObject:
    """JSON Schema of a registry in the check dialect."""
    return _publish_model(CheckRegistry, "A step registry with checks")


def _publish_model(model: type[FileModel], title: str) -> JsonObject:
    schema = model.model_json_schema()
    definitions = schema.pop("$defs")
    models = {each.__name__: each for each in _models(FileModel)}
    for name, each in {model.__name__: schema, **definitions}.items():
        if name in models:
            _describe(each, models[name])
        each.pop("title", None)  # with the description it says how the models are built
        each.pop("description", None)
    address: JsonObject = {"type": "string", "description": "Address of this schema, for editors."}
    schema["properties"] = {"$schema": address, **schema["properties"]}
    return {"$schema": DRAFT, "title": title, **schema, "$defs": definitions}


def _models(base: type[FileModel]) -> Iterator[type[FileModel]]:
    for each in base.__subclasses__():
        yield each
        yield from _models(each)


def _describe(schema: dict[str, Any], model: type[FileModel]) -> None:
    """Describe each key as `fields.yaml` does, in its order, and drop what only shows how the model is built."""
    fields, properties = fields_of(model), schema.get("properties", {})
    for key, note in field_notes()[model.__name__].items():
        described = properties.pop(key)
        if NULL_ALLOWED not in fields[key].metadata:
            described = _without_null(described)
        described.pop("title", None)
        if isinstance(described.get("default"), dict):
            del described["default"]
        properties[key] = {**described, "description": note.description}
    if model.rest_has_no_effect:
        schema["additionalProperties"] = True


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    branches = [one for one in schema.get("anyOf", ()) if one != {"type": "null"}]
    rest = {key: value for key, value in schema.items() if key != "anyOf" and (key, value) != ("default", None)}
    if len(branches) == 1:
        return {**branches[0], **rest}
    return {**rest, "anyOf": branches} if branches else rest
