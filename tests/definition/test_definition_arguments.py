"""Run arguments against declared parameters: conversion, defaults, validation, and the issue."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from load_cases import Case, cases, edit_json

from stepflow.definition.agent import check_arguments
from stepflow.definition.loading import load_agent
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.errors import Problem

TABLE = yaml.safe_load((Path(__file__).parent / "arguments.yaml").read_text(encoding="utf-8"))
VALID = {case.name: case for case in cases("valid")}


def agent_with(root: Path, case: Case = VALID["ungated"], **parameters: dict) -> AgentDefinition:
    """An agent that declares these parameters and no other."""
    declared = {name: {"cli": f"--{name}", "description": "A value.", **each} for name, each in parameters.items()}
    edit_json(case.build(root) / ".agent/demo/agent.json", "set", "/parameters", declared)
    return load_agent("demo", root=root)


def codes(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.code for problem in problems]


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "rules", "given", "becomes"), TABLE["fits"])
def test_text_becomes_the_declared_type(kind: str, rules: dict, given: object, becomes: object, tmp_path: Path) -> None:
    agent = agent_with(tmp_path, x={"type": kind, "validation": rules})
    assert check_arguments(agent, {"x": given}, issue=None) == ({"x": becomes}, ())


@pytest.mark.sample(4)
@pytest.mark.parametrize(("kind", "rules", "given", "says"), TABLE["refused"])
def test_a_value_that_breaks_the_declaration_is_refused(
    kind: str, rules: dict, given: object, says: str, tmp_path: Path
) -> None:
    agent = agent_with(tmp_path, x={"type": kind, "validation": rules})
    arguments, problems = check_arguments(agent, {"x": given}, issue=None)
    assert (arguments, codes(problems)) == ({}, ["SF209"])
    assert says in problems[0].message


def test_an_explicit_value_beats_the_default(tmp_path: Path) -> None:
    declared = agent_with(tmp_path, x={"type": "number", "default": 2})
    assert check_arguments(declared, {}, issue=None)[0] == {"x": 2}
    assert check_arguments(declared, {"x": None}, issue=None)[0] == {"x": 2}
    assert check_arguments(declared, {"x": "3"}, issue=None)[0] == {"x": 3}


def test_a_required_argument_must_be_given_and_an_optional_one_may_be_left_out(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, x={"type": "string", "required": True}, y={"type": "string"})
    arguments, problems = check_arguments(agent, {}, issue=None)
    assert (arguments, codes(problems)) == ({}, ["SF209"])
    assert (problems[0].file, problems[0].path) == (".agent/demo/agent.json", "/parameters/x")


def test_what_is_not_declared_is_dropped_with_a_note(tmp_path: Path) -> None:
    arguments, problems = check_arguments(agent_with(tmp_path), {"y": 1}, issue=None)
    assert (arguments, codes(problems)) == ({}, ["SF108"])
    assert problems[0].severity == "note"


def test_the_issue_is_an_argument_though_nobody_declared_it(tmp_path: Path) -> None:
    agent = agent_with(tmp_path)
    assert check_arguments(agent, {}, issue=7) == ({"issue": 7}, ())
    assert check_arguments(agent, {"issue": "7"}, issue=7) == ({"issue": 7}, ())
    assert check_arguments(agent, {"issue": "7"}, issue=None) == ({"issue": 7}, ())


@pytest.mark.parametrize(("kind", "value"), [("number", 7), ("string", "7")])
def test_a_declared_issue_takes_the_number_of_the_run(kind: str, value: object, tmp_path: Path) -> None:
    declared = agent_with(tmp_path, issue={"type": kind, "required": True})
    assert check_arguments(declared, {}, issue=7) == ({"issue": value}, ())


@pytest.mark.parametrize("declared", [{}, {"issue": {"type": "number"}}])
def test_an_issue_that_differs_from_the_run_is_refused(declared: dict, tmp_path: Path) -> None:
    problems = check_arguments(agent_with(tmp_path, **declared), {"issue": 8}, issue=7)[1]
    assert codes(problems) == ["SF209"]
    assert "the run is about issue 7" in problems[0].message


def test_outside_state_needs_an_issue(tmp_path: Path) -> None:
    problems = check_arguments(agent_with(tmp_path, VALID["issue-flow"]), {}, issue=None)[1]
    assert codes(problems) == ["SF209"]
    assert "needs an issue" in problems[0].message
