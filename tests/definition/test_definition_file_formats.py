"""The published JSON Schemas of our files come from the models, and hold for what the loader accepts."""

from __future__ import annotations

import copy
import json

import pytest
from jsonschema import Draft202012Validator
from load_cases import DEFINITIONS

from stepflow.definition.file_models import AgentFile, CheckRegistry, GateRegistry
from stepflow.definition.shapes import FileModel

FOLDER = DEFINITIONS / "valid/issue-flow/.agent/demo"
MODELS = {"agent.json": AgentFile, "steps_registry.json": GateRegistry}


@pytest.mark.parametrize(("file", "model"), MODELS.items())
def test_a_sound_file_fits_its_published_schema(file: str, model: type[FileModel]) -> None:
    schema = model.model_json_schema()
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(json.loads((FOLDER / file).read_text()))


@pytest.mark.parametrize(
    ("file", "path", "value"),
    [
        ("agent.json", ["name"], "Demo"),
        ("agent.json", ["name"], None),
        ("agent.json", ["runner", "flow", "formatRetries"], -1),
        ("agent.json", ["parameters", "issue", "type"], "int"),
        ("steps_registry.json", ["steps", "initial.issue", "stepKind"], "wrok"),
        ("steps_registry.json", ["steps", "initial.issue", "outputSchemaRef"], {"file": "x"}),
        ("steps_registry.json", ["steps", "closure.issue", "fallbackKey"], None),
    ],
)
def test_a_wrong_value_breaks_the_published_schema(file: str, path: list[str], value: object) -> None:
    document = json.loads((FOLDER / file).read_text())
    node = document
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    assert not Draft202012Validator(MODELS[file].model_json_schema()).is_valid(document)


def test_a_registry_of_the_check_dialect_fits_its_published_schema() -> None:
    schema = CheckRegistry.model_json_schema()
    Draft202012Validator.check_schema(schema)
    document = json.loads((DEFINITIONS / "valid/check-flow/.agent/demo/steps_registry.json").read_text())
    Draft202012Validator(schema).validate(document)
    document["steps"]["s_a8f3"]["check"]["onFail"]["maxRetries"] = -1
    assert not Draft202012Validator(schema).is_valid(document)


def test_needed_keys_are_required_and_null_is_allowed_only_where_it_says_something() -> None:
    schema = GateRegistry.model_json_schema()
    assert schema["required"] == ["agentId", "version", "c1", "steps"]
    step = schema["$defs"]["StepEntry"]
    assert step["required"] == ["stepId", "c2", "c3"]
    assert {"type": "null"} in step["properties"]["uvVariables"]["anyOf"]
    assert step["properties"]["model"]["type"] == "string"
    document = json.loads((FOLDER / "steps_registry.json").read_text())
    for key in schema["required"]:
        incomplete = copy.deepcopy(document)
        del incomplete[key]
        assert not Draft202012Validator(schema).is_valid(incomplete)
