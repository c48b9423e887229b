"""What editors and the reference page say about our files is complete, true, and fits what the loader accepts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from load_cases import DEFINITIONS, Case, cases, edit_json

from stepflow.definition import check_dialect, file_models
from stepflow.definition.agent import DEFAULT_REGISTRY
from stepflow.definition.loading import DEFAULT_FORMAT_RETRIES, DEFAULT_SCHEMAS_BASE
from stepflow.definition.published import agent_schema, check_schema, gate_schema, registry_schema
from stepflow.definition.shapes import field_notes
from stepflow.definition.texts import DEFAULT_BASE, DEFAULT_EDITION, DEFAULT_PLAIN_TEMPLATE, DEFAULT_TEMPLATE
from stepflow.domain.agent import agent_settings
from stepflow.domain.agent.agent_settings import FileModel
from stepflow.domain.agent.definition import DEFAULT_MODEL
from stepflow.model.models import DEFAULT_MAX_TOKENS

REGISTRY = "steps_registry.json"
SCHEMAS = {"agent.json": agent_schema, REGISTRY: registry_schema}
#: Valid cases in a form that the schemas, which describe the names of today, do not know.
OLD_FORMS = {"old-registry-names"}


#: What several models have; only these are published.
ABSTRACT = (FileModel, file_models.Registry, file_models.ModelSettings, file_models.StepSettings)


def models() -> dict[str, type[FileModel]]:
    return {
        name: model
        for name, model in (vars(agent_settings) | vars(file_models) | vars(check_dialect)).items()
        if isinstance(model, type) and issubclass(model, FileModel) and model not in ABSTRACT
    }


def test_every_key_of_our_files_has_a_note_and_every_note_a_key() -> None:
    keys = {name: {info.alias or at for at, info in one.model_fields.items()} for name, one in models().items()}
    assert {name: set(notes) for name, notes in field_notes().items()} == keys


@pytest.mark.parametrize(
    ("model", "key", "default"),
    [
        ("PromptSettings", "registry", DEFAULT_REGISTRY),
        ("SchemaFiles", "base", DEFAULT_SCHEMAS_BASE),
        ("FlowSettings", "defaultModel", DEFAULT_MODEL),
        ("FlowSettings", "formatRetries", str(DEFAULT_FORMAT_RETRIES)),
        ("FlowSettings", "maxOutputTokens", str(DEFAULT_MAX_TOKENS)),
        ("GateRegistry", "userPromptsBase", DEFAULT_BASE),
        ("GateRegistry", "schemasBase", DEFAULT_SCHEMAS_BASE),
        ("GateRegistry", "pathTemplate", DEFAULT_TEMPLATE),
        ("GateRegistry", "pathTemplateNoAdaptation", DEFAULT_PLAIN_TEMPLATE),
        ("StepEntry", "edition", DEFAULT_EDITION),
    ],
)
def test_a_default_that_stands_elsewhere_is_told_as_it_is(model: str, key: str, default: str) -> None:
    assert field_notes()[model][key].otherwise == f"`{default}`"


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "case", [one for one in cases("valid") if one.name not in OLD_FORMS], ids=lambda case: case.name
)
def test_every_valid_agent_fits_the_published_schemas(case: Case, tmp_path: Path) -> None:
    folder = case.build(tmp_path) / ".agent/demo"
    documents = {file: json.loads((folder / file).read_text()) for file in SCHEMAS}
    if "behavior" in documents["agent.json"]:  # the flat layout, an old form too
        del documents["agent.json"]
    for file, document in documents.items():
        Draft202012Validator(SCHEMAS[file]()).validate(document)


@pytest.mark.parametrize("make", [agent_schema, gate_schema, check_schema])
def test_a_published_schema_describes_every_key_and_nothing_of_our_own_making(make) -> None:
    schema = make()
    Draft202012Validator.check_schema(schema)
    shapes = [schema, *schema["$defs"].values()]
    properties = [one for shape in shapes for one in shape.get("properties", {}).values()]
    assert len(properties) > 30
    assert all(one["description"] for one in properties)
    assert ".md §" not in json.dumps(schema, ensure_ascii=False)


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("case", "file", "edit", "fits"),
    [
        ("issue-flow", "agent.json", ["set", "/name", "Demo"], False),
        ("issue-flow", "agent.json", ["set", "/name", None], False),
        ("issue-flow", "agent.json", ["set", "/runner/flow/formatRetries", -1], False),
        ("issue-flow", "agent.json", ["set", "/parameters/issue/type", "int"], False),
        ("issue-flow", REGISTRY, ["set", "/steps/initial.issue/stepKind", "wrok"], False),
        ("issue-flow", REGISTRY, ["set", "/steps/initial.issue/outputSchemaRef", {"file": "x"}], False),
        ("issue-flow", REGISTRY, ["set", "/steps/closure.issue/fallbackKey", None], False),
        ("issue-flow", REGISTRY, ["set", "/steps/closure.issue/uvVariables", None], True),
        *(
            ("issue-flow", REGISTRY, ["remove", f"/{key}"], False)
            for key in ("agentId", "version", "c1", "steps", "steps/initial.issue/stepId")
        ),
        ("check-flow", REGISTRY, ["set", "/steps/s_a8f3/check/onFail/maxRetries", -1], False),
    ],
)
def test_a_published_schema_refuses_what_the_loader_refuses(
    case: str, file: str, edit: list, fits: bool, tmp_path: Path
) -> None:
    path = Case(folder=DEFINITIONS / "valid" / case, data={}).build(tmp_path) / ".agent/demo" / file
    edit_json(path, *edit)
    assert Draft202012Validator(SCHEMAS[file]()).is_valid(json.loads(path.read_text())) is fits
