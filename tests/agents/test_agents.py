"""The two agents that are part of this repository: our own in `.agent/fixer`, and the one of `stepflow demo`."""

from __future__ import annotations

import glob
import shutil
import tomllib
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepflow.cli import main
from stepflow.definition.loading import load_agent
from stepflow.domain.words import Intent
from stepflow.engine.gate.answer import check_format
from stepflow.engine.prompt.template import parse_retry_template
from stepflow.run.scenarios import load_scenario
from tests.checkout import git

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stepflow.domain.definition import Step
    from stepflow.domain.json import JsonObject
    from stepflow.model.scenario import Scenario

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "stepflow/cli/demo"
OURS = ROOT / ".agent/fixer"
OF_DEMO = DEMO / "repository/.agent/fixer"
AGENTS = {"ours": OURS, "demo": OF_DEMO}
SCENARIOS = {
    **{file.stem: (file, OURS) for file in sorted((OURS / "scenarios").glob("*.yaml"))},
    "demo": (DEMO / "scenario.yaml", OF_DEMO),
}


@pytest.mark.parametrize("folder", AGENTS.values(), ids=AGENTS)
def test_the_agent_loads_without_any_problem(folder: Path) -> None:
    assert [str(problem) for problem in load_agent(folder).problems] == []


@pytest.mark.parametrize("folder", AGENTS.values(), ids=AGENTS)
def test_every_failure_has_a_retry_prompt_of_its_own_that_can_be_parsed(folder: Path) -> None:
    entry = load_agent(folder).steps["closure.issue"].validation
    assert entry is not None
    assert {one.validator.pattern.name for one in entry.conditions} == set(entry.retry_prompts)
    assert {parse_retry_template(prompt.text) for prompt in entry.retry_prompts.values()} == {None}


@pytest.mark.parametrize("folder", AGENTS.values(), ids=AGENTS)
def test_prompts_stay_short(folder: Path) -> None:
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in folder.rglob("prompts/**/*.md")}
    assert lengths
    assert {file: lines for file, lines in lengths.items() if lines > 60} == {}


def test_there_are_scenarios_for_a_straight_run_a_repaired_one_and_an_abort() -> None:
    outcomes = [_expected(file) for file, folder in SCENARIOS.values() if folder == OURS]
    assert sorted(outcomes) == ["aborted", "completed", "completed after a refusal"]


@pytest.mark.parametrize(("file", "folder"), SCENARIOS.values(), ids=SCENARIOS)
def test_every_scripted_answer_fits_the_schema_of_its_step(file: Path, folder: Path) -> None:
    steps = load_agent(folder).steps
    checked = [
        (step_id, check_format(answer, *_schemas(steps[step_id], answer)))
        for step_id, answer in _answers(load_scenario(file))
    ]
    assert checked
    assert [(step_id, errors) for step_id, errors in checked if errors] == []


@pytest.mark.parametrize(("file", "folder"), SCENARIOS.values(), ids=SCENARIOS)
def test_a_scenario_expects_only_steps_and_validators_that_exist(file: Path, folder: Path) -> None:
    agent, expect = load_agent(folder), load_scenario(file).expect
    entry = agent.steps["closure.issue"].validation
    assert expect is not None
    assert entry is not None
    assert set(expect.steps or ()) <= set(agent.steps)
    assert set(expect.validators or {}) <= {one.validator.name for one in entry.conditions}


@pytest.mark.whole
def test_our_own_agent_does_what_its_scenarios_expect(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
    ours = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for file in (name for name in ours if (ROOT / name).is_file()):
        (tmp_path / "checkout" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / "checkout" / file)
    assert main(["rehearse", "fixer", "--repo", str(tmp_path / "checkout")]) == 0, capsys.readouterr().out


def test_the_package_ships_every_file_of_the_demo() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = settings["tool"]["setuptools"]["package-data"]["stepflow.cli"]
    # As in setuptools, `*` passes over names that begin with a dot.
    matches = (glob.glob(pattern, root_dir=DEMO.parent, recursive=True) for pattern in patterns)  # noqa: PTH207
    shipped = set(chain.from_iterable(matches))
    files = {path.relative_to(DEMO.parent).as_posix() for path in DEMO.rglob("*") if path.is_file()}
    assert files
    assert files - shipped == set()


def test_no_tool_takes_the_demos_python_files_for_ours() -> None:
    assert list(DEMO.rglob("*.py")) == []
    assert {file.name for file in DEMO.rglob("*.py.txt")} == {
        "durations.py.txt",
        "test_durations.py.txt",
        "timesheet.py.txt",
    }


def _expected(file: Path) -> str:
    expect = load_scenario(file).expect
    assert expect is not None
    refused = any("fail" in results for results in (expect.validators or {}).values())
    return f"{expect.outcome}{' after a refusal' if refused else ''}"


def _answers(scenario: Scenario) -> Iterator[tuple[str, JsonObject]]:
    """Every structured answer with its step: by the list it stands in, or the last step that was expected."""
    for queue, turns in scenario.queues().items():
        step_id = queue
        for turn in turns:
            step_id = turn.expect_step or step_id
            if turn.output is not None:
                yield step_id, turn.output


def _schemas(step: Step, answer: JsonObject) -> tuple[JsonObject | None, ...]:
    """As in a run: a closing answer must also fit the schema of the validation entry."""
    action = answer["next_action"]
    closing = isinstance(action, dict) and action["action"] == Intent.CLOSING
    return (step.schema, step.validation.schema if closing and step.validation else None)
