"""`stepflow schema`: JSON Schemas that hold for the files they are about."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from stepflow.cli import main
from stepflow.journal import journal_schema
from stepflow.report.document import report_schema

ROOT = Path(__file__).parents[2]
SCENARIOS = sorted([*ROOT.glob(".agent/*/scenarios/*.yaml"), *ROOT.glob("tests/runs/*/scenario.yaml")])
FILES = {
    "agent": (".agent/fixer/agent.json", "examples/.agent/greeter/agent.json"),
    "registry": (".agent/fixer/steps_registry.json", "examples/.agent/greeter/steps_registry.json"),
    "scenario": ("examples/greeter.yaml", *(str(path.relative_to(ROOT)) for path in SCENARIOS)),
    "report": ("tests/report/golden/report.json",),
}


def printed(name: str, capsys: pytest.CaptureFixture[str]) -> dict:
    assert main(["schema", name]) == 0
    text = capsys.readouterr().out
    assert re.findall(r"\b(?:action|boundary|cli|flow|house|prompts|registry|security)\.md", text) == []
    schema = json.loads(text)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    return schema


@pytest.mark.whole
@pytest.mark.parametrize("name", FILES)
def test_the_repositorys_own_files_fit(name: str, capsys) -> None:
    schema = printed(name, capsys)
    assert FILES[name]
    for file in FILES[name]:
        document = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))  # JSON is YAML too
        Draft202012Validator(schema).validate(document)


def test_the_schemas_of_journal_and_report_are_those_that_runs_are_held_to(capsys) -> None:
    assert printed("journal", capsys) == journal_schema()
    assert printed("report", capsys) == report_schema()


@pytest.mark.parametrize(
    "wrong",
    [
        {"turns": [], "steps": {}},
        {"turns": [{"output": "next"}]},
        {"turns": [], "parameters": {}},
        {"turns": [{"tools": [{"bash": {}, "read": {}}]}]},
    ],
)
def test_a_wrong_scenario_breaks_its_schema(wrong: dict, capsys) -> None:
    assert not Draft202012Validator(printed("scenario", capsys)).is_valid(wrong)
