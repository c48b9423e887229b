"""Everything that can be known is said at once: what is broken in one place hides nothing of another."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from load_cases import DEFINITIONS, Case, cases, edit_json

from stepflow.definition.loading import validate_agent

REGISTRY = "steps_registry.json"
START, GO_ON, END = "/steps/initial.issue", "/steps/continuation.issue", "/steps/closure.issue"
#: Faults of other places than the broken ones: file, where, what is written there, and the code that says so.
FAULTS = [
    ("gate", REGISTRY, f"{END}/structuredGate/intentField", "next_action.nothing", "SF325"),
    ("target", REGISTRY, f"{GO_ON}/transitions/repeat", {"target": "nowhere"}, "SF343"),
    ("validator", REGISTRY, "/validators/git-clean/failurePattern", "nothing", "SF604"),
    ("schema", REGISTRY, f"{END}/outputSchemaRef/schema", "no.such.schema", "SF403"),
    ("verdict", "agent.json", "/runner/verdict", {"type": "count:check"}, "SF204"),
    ("prompt", REGISTRY, f"{GO_ON}/c3", "no-such-prompt", "SF501"),
]
BROKEN = [
    ("a step", REGISTRY, f"{START}/transitions", "everywhere"),
    ("a key of a step", REGISTRY, f"{START}/uvVariables", 7),
    ("a missing key of a step", REGISTRY, f"{START}/stepId", ""),
    ("agent.json", "agent.json", "/description", 7),
]


def build(tmp_path: Path, *edits: tuple[str, str, object]) -> set[str]:
    root = Case(folder=DEFINITIONS / "valid/issue-flow", data={}).build(tmp_path)
    for file, pointer, value in edits:
        edit_json(root / ".agent/demo" / file, "set", pointer, value)
    return {f"{one.code} {one.path}" for one in validate_agent("demo", root=root) if one.severity == "error"}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda row: row[0])
def test_a_broken_place_brings_its_own_problem_alone(broken: tuple[str, str, str, object], tmp_path: Path) -> None:
    found = build(tmp_path, broken[1:])
    assert len(found) == 1, found


@pytest.mark.parametrize("fault", FAULTS, ids=lambda row: row[0])
@pytest.mark.parametrize("broken", BROKEN, ids=lambda row: row[0])
def test_a_broken_place_hides_no_problem_of_another(
    broken: tuple[str, str, str, object], fault: tuple[str, str, str, object, str], tmp_path: Path
) -> None:
    if broken[1] == fault[1] == "agent.json":
        pytest.skip("one file, whose rules need its shape")
    alone = build(tmp_path / "alone", fault[1:4])
    assert any(one.startswith(fault[4]) for one in alone), alone
    together = build(tmp_path / "together", broken[1:], fault[1:4])
    assert alone < together


def test_a_fault_in_a_schema_and_one_in_a_prompt_are_said_beside_a_broken_step(tmp_path: Path) -> None:
    root = Case(folder=DEFINITIONS / "valid/issue-flow", data={}).build(tmp_path)
    folder = root / ".agent/demo"
    edit_json(folder / REGISTRY, "set", f"{START}/transitions", "everywhere")
    edit_json(folder / REGISTRY, "set", f"{END}/c3", "no-such-prompt")
    prompt = folder / "prompts/steps/continuation/issue/f_default.md"
    prompt.write_text(prompt.read_text() + "\n{{#if x}} open\n")
    schema = folder / "schemas/issue.schema.json"
    schema.write_text(schema.read_text() + "}")
    found = {(one.code, Path(one.file).name) for one in validate_agent("demo", root=root)}
    assert {file for _, file in found} >= {REGISTRY, prompt.name, schema.name}, found


#: Those that need no option.
VALID = [each for each in cases("valid") if not each.data.get("options")]
KINDS = ("steps", "validators", "failurePatterns", "validationSteps")


@pytest.mark.sample(4)
@pytest.mark.parametrize("case", VALID, ids=lambda case: case.name)
def test_whatever_is_broken_in_a_sound_agent_brings_no_problem_of_another(case: Case, tmp_path: Path) -> None:
    root = case.build(tmp_path)
    usual = validate_agent("demo", root=root)
    file = root / ".agent/demo" / REGISTRY
    written = file.read_text()
    for kind in KINDS:
        for name, entry in json.loads(written).get(kind, {}).items():
            edit_json(file, "set", f"/{kind}/{name}", {**entry, "name": 7} if kind == "steps" else 7)
            found = validate_agent("demo", root=root)
            others = [one for one in found if not one.path.startswith(f"/{kind}/{name}")]
            assert {one.message for one in others} <= {one.message for one in usual}
            file.write_text(written)
    edit_json(root / ".agent/demo/agent.json", "set", "/name", 7)
    assert not [one for one in validate_agent("demo", root=root) if one.severity == "error" and one.path != "/name"]


@pytest.mark.parametrize(("pointer", "value"), [("/runner/verdict", {"type": "count:check"}), ("/name", "other")])
def test_a_broken_registry_hides_no_problem_of_the_agent_file(pointer: str, value: object, tmp_path: Path) -> None:
    alone = {one for one in build(tmp_path / "alone", ("agent.json", pointer, value)) if pointer in one}
    broken = (REGISTRY, "/version", 7)
    assert alone < build(tmp_path / "together", broken, ("agent.json", pointer, value))
