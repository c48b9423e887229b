"""The corpus: every folder below tests/definitions/invalid gives exactly its problems."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_cases import Case, cases

from stepflow.definition.agent import check_arguments
from stepflow.definition.loading import load_agent, validate_agent
from stepflow.definition.rules import rules
from stepflow.errors import DefinitionError, Problem, Severity


def locations_of(problems: tuple[Problem, ...]) -> list[dict]:
    return [{"code": one.code, "file": one.file, "path": one.path, "line": one.line} for one in problems]


def problems_of(case: Case, root: Path, options: dict) -> tuple[Problem, ...]:
    if "arguments" not in case.data:
        return validate_agent(case.agent, root=root, **options)
    agent = load_agent(case.agent, root=root, **options)
    return check_arguments(agent, case.data["arguments"], issue=case.data.get("issue"))[1]


@pytest.mark.sample(38)
@pytest.mark.parametrize("case", cases("invalid"), ids=lambda case: case.name)
def test_an_invalid_definition_gives_exactly_its_problems(case: Case, tmp_path: Path) -> None:
    root = case.build(tmp_path)
    options = {**case.options}
    problems = problems_of(case, root, options)
    expected = case.data["problems"]
    assert locations_of(problems) == [
        {key: one.get(key) for key in ("code", "file", "path", "line")} for one in expected
    ]
    for problem, one in zip(problems, expected, strict=True):
        assert one["says"] in problem.message
        assert problem.severity.value == one.get("severity", rules()[problem.code].severity)
        assert problem.fix.endswith(".")
    failed = any(problem.severity is Severity.ERROR for problem in problems)
    if failed and "bare_registry" not in options and "arguments" not in case.data:
        with pytest.raises(DefinitionError) as raised:
            load_agent(case.agent, root=root, **options)
        assert raised.value.problems == problems


def test_every_code_has_a_case() -> None:
    shown = {one["code"] for case in cases("invalid") for one in case.data["problems"]}
    # What is on a machine says nothing of an agent: tests/cli/test_cli_validate.py has SF608.
    assert shown == set(rules()) - {"SF608"}
