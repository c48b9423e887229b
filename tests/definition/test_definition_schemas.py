"""Answer schemas: what references and members of allOf become, and what is refused (definition.md §8)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from load_cases import DEFINITIONS, cases, edit_json

from stepflow.definition.loading import load_agent, validate_agent

TABLE = yaml.safe_load((Path(__file__).parent / "schemas.yaml").read_text(encoding="utf-8"))
#: A registry without gates asks nothing of the schemas of its steps.
UNGATED = next(case for case in cases("valid") if case.folder == DEFINITIONS / "valid/ungated")
ROWS = [
    pytest.param(case, identifier, gives, id=f"{case['name']} {identifier}")
    for case in TABLE
    for identifier, gives in case.get("identifiers", {"#/": case.get("gives")}).items()
]


def agent_with(case: dict, identifier: str, root: Path) -> Path:
    """A repository whose agent's first step asks for a schema in the files of the case."""
    folder = UNGATED.build(root) / ".agent/demo"
    for name, document in case.items():
        if name.endswith(".json"):
            (folder / "schemas" / name).parent.mkdir(exist_ok=True)
            (folder / "schemas" / name).write_text(json.dumps(document), encoding="utf-8")
    reference = {"file": "a.json", "schema": identifier}
    edit_json(folder / "steps_registry.json", "set", "/steps/start/outputSchemaRef", reference)
    return root


@pytest.mark.sample(9)
@pytest.mark.parametrize(("case", "identifier", "gives"), ROWS)
def test_a_schema_becomes_what_the_table_says(case: dict, identifier: str, gives: object, tmp_path: Path) -> None:
    root = agent_with(case, identifier, tmp_path)
    codes = [problem.code for problem in validate_agent("demo", root=root) if problem.code.startswith("SF4")]
    if isinstance(gives, list):
        assert codes == gives
    else:
        assert codes == []
        assert load_agent("demo", root=root).steps["start"].schema == gives
