"""All verdict types and the names they had before."""

from __future__ import annotations

from pathlib import Path

import pytest
from load_cases import DEFINITIONS, Case, edit_json

from stepflow.definition.loading import load_agent, validate_agent
from stepflow.definition.old_names import OLD_VERDICT_TYPES
from stepflow.domain.json import JsonObject

GOOD: dict[str, JsonObject] = {
    "poll:state": {},
    "count:iteration": {"maxIterations": 4},
    "count:check": {"maxChecks": 1},
    "detect:keyword": {"verdictKeyword": "DONE"},
    "detect:structured": {"signalType": "done", "requiredFields": ["a"]},
    "detect:graph": {"maxIterations": 7},
    "meta:composite": {
        "operator": "first",
        "conditions": [
            {"type": "count:iteration", "config": {"maxIterations": 2}},
            {"type": "keywordSignal", "config": {"verdictKeyword": "X"}},
        ],
    },
}


def repository(tmp_path: Path, verdict: JsonObject) -> Path:
    root = Case(folder=DEFINITIONS / "valid/issue-flow", data={}).build(tmp_path)
    folder = root / ".agent/demo"
    edit_json(folder / "agent.json", "set", "/runner/verdict", verdict)
    edit_json(folder / "steps_registry.json", "set", "/entryStep", "initial.issue")
    edit_json(folder / "steps_registry.json", "remove", "/entryStepMapping")
    return root


@pytest.mark.parametrize("kind", GOOD)
def test_every_type_loads_with_its_config(kind: str, tmp_path: Path) -> None:
    root = repository(tmp_path, {"type": kind, "config": GOOD[kind]})
    agent = load_agent("demo", root=root)
    assert agent.verdict.type == kind
    assert agent.verdict.limits.iterations == GOOD[kind].get("maxIterations", 10)
    assert {problem.code for problem in agent.problems} <= {"SF110"}


@pytest.mark.parametrize(("written", "most"), [(None, 100), (5, 5), (100, 100), (500, 100)])
def test_the_check_dialect_runs_at_most_100_steps_and_fewer_when_told(
    written: int | None, most: int, tmp_path: Path
) -> None:
    root = Case(folder=DEFINITIONS / "valid/check-flow", data={}).build(tmp_path)
    config = {} if written is None else {"maxIterations": written}
    edit_json(root / ".agent/demo/agent.json", "set", "/behavior/completionConfig", config)
    agent = load_agent("demo", root=root)
    assert agent.verdict.limits.iterations == most
    assert agent.dialect == "check"


@pytest.mark.sample(4)
@pytest.mark.parametrize(("old", "new"), OLD_VERDICT_TYPES.items())
def test_every_old_name_is_read_as_the_new_one(old: str, new: str, tmp_path: Path) -> None:
    root = repository(tmp_path, {"type": old, "config": GOOD[new]})
    agent = load_agent("demo", root=root)
    assert agent.verdict.type == new
    assert "SF110" in {problem.code for problem in agent.problems}


@pytest.mark.parametrize("kind", [kind for kind in GOOD if kind not in ("poll:state", "detect:graph")])
def test_a_type_without_its_config_is_refused(kind: str, tmp_path: Path) -> None:
    root = repository(tmp_path, {"type": kind})
    problems = validate_agent("demo", root=root)
    assert {problem.code for problem in problems} == {"SF204"}


def test_without_a_verdict_iterations_are_counted_up_to_ten(tmp_path: Path) -> None:
    agent = load_agent("demo", root=repository(tmp_path, {}))
    assert (agent.verdict.type, agent.verdict.limits.iterations) == ("count:iteration", 10)


def test_a_container_of_old_names_that_is_no_object_is_refused(tmp_path: Path) -> None:
    root = repository(tmp_path, {})
    edit_json(root / ".agent/demo/agent.json", "set", "/prompts", ["x"])
    assert [(problem.code, problem.path) for problem in validate_agent("demo", root=root)] == [("SF106", "/prompts")]


def test_a_new_name_beside_an_old_one_wins(tmp_path: Path) -> None:
    root = repository(tmp_path, {"type": "count:check", "config": {"maxChecks": 2}})
    file = root / ".agent/demo/agent.json"
    edit_json(file, "set", "/runner/completion", {"type": "issue"})
    edit_json(file, "set", "/github", {"enabled": False})
    agent = load_agent("demo", root=root)
    assert agent.verdict.type == "count:check"
    assert agent.github.enabled
