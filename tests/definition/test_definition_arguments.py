"""Run arguments against declared parameters: conversion, defaults, validation, and the issue."""

from __future__ import annotations

import pytest

from stepflow.definition.parameters import check_arguments
from stepflow.domain.definition import AgentDefinition, AgentVerdict, Parameter, SourceText
from stepflow.domain.problem import Problem
from stepflow.domain.words import Dialect, VerdictType


def agent(*parameters: Parameter, verdict: VerdictType = VerdictType.COUNT_ITERATION) -> AgentDefinition:
    return AgentDefinition(
        name="demo",
        version="1.0.0",
        display_name="Demo",
        description="",
        folder=".agent/demo",
        dialect=Dialect.GATE,
        digest="",
        steps={},
        entry_step="a",
        verdict=AgentVerdict(type=verdict, max_iterations=3),
        system_prompt=SourceText(text="", file=""),
        parameters=parameters,
    )


def parameter(kind: str, **more: object) -> Parameter:
    return Parameter(name="x", type=kind, cli="--x", **more)  # type: ignore[arg-type]


def codes(problems: tuple[Problem, ...]) -> list[str]:
    return [problem.code for problem in problems]


LIKE, BOUNDS = {"pattern": "^v[0-9]"}, {"minimum": 1, "maximum": 5}


@pytest.mark.parametrize(
    ("kind", "rules", "given", "expected"),
    [
        ("number", {}, "42", 42),
        ("number", {}, " -1.5 ", -1.5),
        ("number", {}, "+3", 3),
        ("number", {}, 7, 7),
        ("number", {"minimum": 1}, "1", 1),
        ("number", {"maximum": 2.5}, "2.5", 2.5),
        ("number", {"enum": (1, 2)}, "2", 2),
        ("string", {}, "42", "42"),
        ("string", {}, "", ""),
        ("string", LIKE, "v1", "v1"),
        ("boolean", {}, "true", True),
        ("boolean", {}, "False", False),
        ("boolean", {}, True, True),
        ("array", {}, "a, b,c", ["a", "b", "c"]),
        ("array", {}, '["a", 1]', ["a", 1]),
        ("array", {}, "", []),
        ("array", {}, ["a"], ["a"]),
        ("array", LIKE, "v1, v2", ["v1", "v2"]),
        ("array", BOUNDS, "[1, 5]", [1, 5]),
        ("array", {"enum": (1, "a")}, [1, "a"], [1, "a"]),
    ],
)
def test_text_becomes_the_declared_type(kind: str, rules: dict, given: object, expected: object) -> None:
    assert check_arguments(agent(parameter(kind, **rules)), {"x": given}, issue=None) == ({"x": expected}, ())


@pytest.mark.parametrize(
    ("kind", "rules", "given", "says"),
    [
        ("number", {}, "many", "of the type number"),
        ("number", {}, "1e999", "of the type number"),
        ("number", {}, "NaN", "of the type number"),
        ("number", {}, True, "of the type number"),
        ("number", {}, "1.2.3", "of the type number"),
        ("string", {}, 42, "of the type string"),
        ("string", {}, ["a"], "of the type string"),
        ("boolean", {}, "yes", "of the type boolean"),
        ("boolean", {}, 1, "of the type boolean"),
        ("array", {}, "[1", "of the type array"),
        ("array", {}, {"a": 1}, "of the type array"),
        ("number", {"minimum": 1}, "0", "at least 1"),
        ("number", {"maximum": 2.5}, "3", "at most 2.5"),
        ("number", {"enum": (1, 2)}, "3", "one of 1, 2"),
        ("string", LIKE, "w1", ""),
        ("array", LIKE, "v1,w1", "a list of which each item is like the pattern"),
        ("array", LIKE, "w1", "a list of which each item is like the pattern"),
        ("array", LIKE, '["v1", 1]', "a list of which each item is like the pattern"),
        ("array", LIKE, "v1,", "a list of which each item is like the pattern"),
        ("array", BOUNDS, "[1, 9]", ""),
        ("array", BOUNDS, "[1, true]", ""),
        ("array", BOUNDS, "[0]", ""),
        ("array", BOUNDS, "1,2", ""),
        ("array", {"enum": (1, "a")}, [True], ""),
    ],
)
def test_a_value_that_breaks_the_declaration_is_refused(kind: str, rules: dict, given: object, says: str) -> None:
    _, problems = check_arguments(agent(parameter(kind, **rules)), {"x": given}, issue=None)
    assert codes(problems) == ["SF209"]
    assert says in problems[0].message


@pytest.mark.parametrize("given", ["many", True])
def test_a_value_of_another_type_is_no_argument(given: object) -> None:
    assert check_arguments(agent(parameter("number")), {"x": given}, issue=None)[0] == {}


def test_an_explicit_value_beats_the_default() -> None:
    declared = agent(parameter("number", default=2))
    assert check_arguments(declared, {}, issue=None)[0] == {"x": 2}
    assert check_arguments(declared, {"x": None}, issue=None)[0] == {"x": 2}
    assert check_arguments(declared, {"x": "3"}, issue=None)[0] == {"x": 3}


def test_a_required_argument_must_be_given() -> None:
    arguments, problems = check_arguments(agent(parameter("string", required=True)), {}, issue=None)
    assert (arguments, codes(problems)) == ({}, ["SF209"])
    assert problems[0].file == ".agent/demo/agent.json"
    assert problems[0].path == "/parameters/x"


def test_an_optional_argument_without_a_value_is_left_out() -> None:
    assert check_arguments(agent(parameter("string")), {}, issue=None) == ({}, ())


def test_what_is_not_declared_is_dropped_with_a_note() -> None:
    arguments, problems = check_arguments(agent(parameter("string")), {"y": 1}, issue=None)
    assert (arguments, codes(problems)) == ({}, ["SF108"])
    assert problems[0].severity == "note"


def test_the_issue_is_an_argument_though_nobody_declared_it() -> None:
    assert check_arguments(agent(), {}, issue=7) == ({"issue": 7}, ())
    assert check_arguments(agent(), {"issue": "7"}, issue=7) == ({"issue": 7}, ())
    assert check_arguments(agent(), {"issue": "7"}, issue=None) == ({"issue": 7}, ())


def test_a_declared_issue_takes_the_number_of_the_run() -> None:
    declared = Parameter(name="issue", type="number", cli="--issue", required=True)
    assert check_arguments(agent(declared), {}, issue=7) == ({"issue": 7}, ())
    text = Parameter(name="issue", type="string", cli="--issue", required=True)
    assert check_arguments(agent(text), {}, issue=7) == ({"issue": "7"}, ())


def test_an_issue_that_differs_from_the_run_is_refused() -> None:
    declared = Parameter(name="issue", type="number", cli="--issue")
    for one in (agent(), agent(declared)):
        problems = check_arguments(one, {"issue": 8}, issue=7)[1]
        assert codes(problems) == ["SF209"]
        assert "the run is about issue 7" in problems[0].message


def test_outside_state_needs_an_issue() -> None:
    problems = check_arguments(agent(verdict=VerdictType.POLL_STATE), {}, issue=None)[1]
    assert codes(problems) == ["SF209"]
    assert "needs an issue" in problems[0].message
