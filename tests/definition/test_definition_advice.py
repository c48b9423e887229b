"""What a problem advises is accepted when it is done, and names what is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_cases import cases, edit_json

from stepflow.definition.loading import validate_agent

REGISTRY = "steps_registry.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    case = next(each for each in cases("valid") if each.name == "issue-flow")
    return case.build(tmp_path) / ".agent/demo"


def fixes(folder: Path, code: str) -> list[str]:
    return [each.fix for each in validate_agent("demo", root=folder.parents[1]) if each.code == code]


@pytest.mark.parametrize(
    ("pointer", "value", "fix"),
    [
        ("/validators/git-clean/timeout", "600", 'Write a number without quotes, for example "timeout": 600.'),
        ("/validators/git-clean/timeout", "soon", 'Write a number without quotes, for example "timeout": 600.'),
        ("/validators/git-clean/timeout", 0, "Write more than 0.0."),
        (
            "/steps/initial.issue/uvVariables",
            "issue",
            'Write a list in brackets, for example "uvVariables": […].',
        ),
        (
            "/steps/initial.issue/usesStdin",
            "True",
            'Write true or false without quotes, for example "usesStdin": true.',
        ),
        ("/steps/initial.issue/name", 7, 'Write a string in double quotes, for example "name": "…".'),
    ],
)
def test_a_wrong_value_is_told_with_an_example_of_its_kind(folder: Path, pointer: str, value: object, fix: str) -> None:
    edit_json(folder / REGISTRY, "set", pointer, value)
    problems = validate_agent("demo", root=folder.parents[1])
    assert fix in [each.fix for each in problems if each.path == pointer]


def test_an_approval_of_an_entry_step_moves_to_a_step_that_can_wait(folder: Path) -> None:
    edit_json(folder / REGISTRY, "set", "/steps/initial.issue/approval", {"by": "write"})
    assert fixes(folder, "SF355") == ['Move "approval" to step "continuation.issue".']
    edit_json(folder / REGISTRY, "set", "/steps/continuation.issue/approval", {"by": "write"})
    assert fixes(folder, "SF355") == ['Remove it: "continuation.issue" waits for approval already.']
    edit_json(folder / REGISTRY, "remove", "/steps/initial.issue/approval")
    assert fixes(folder, "SF355") == []


def test_a_variable_that_nothing_supplies_is_not_to_be_declared(folder: Path) -> None:
    prompt = folder / "prompts/steps/continuation/issue/f_default.md"
    prompt.write_text(prompt.read_text() + "{uv-nobody} {uv-plan}\n")
    assert fixes(folder, "SF505") == []
    assert fixes(folder, "SF507") == ["Declare a parameter, hand it off in a step, or remove it."]
