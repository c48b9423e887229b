"""Mistakes of authors, planted one at a time: each is reported where it is, with what to change."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import yaml
from load_cases import DEFINITIONS

from stepflow.errors import Problem, Severity
from stepflow.modes.validate import check_agents

ROOT = Path(__file__).parents[2]
AGENTS = {
    "fixer": ROOT / ".agent",
    "greeter": ROOT / "examples/.agent",
    "demo": DEFINITIONS / "valid/issue-flow/.agent",
    "checks": DEFINITIONS / "valid/check-flow/.agent",
}
#: What the validators of these agents start.
PROGRAMS = {"git", "python3", "mypy", "sh", "bash"}
PLANTED = yaml.safe_load((Path(__file__).parent / "planted.yaml").read_text(encoding="utf-8"))


def folder_name(agent: str) -> str:
    return "demo" if agent == "checks" else agent


def plant(mistake: dict, root: Path) -> Path:
    """A sound agent with one mistake in it; its folder. Its scenarios, which take most of the time to read, come along
    where the mistake is in one of them."""
    is_of_scenario = mistake.get("file", "").startswith("scenarios/")
    left_out = () if is_of_scenario else ("scenarios",)
    shutil.copytree(AGENTS[mistake["agent"]], root / ".agent", ignore=shutil.ignore_patterns(*left_out))
    folder = root / ".agent" / folder_name(mistake["agent"])
    if "move" in mistake:
        (folder / mistake["move"][0]).rename(folder / mistake["move"][1])
    else:
        change(folder / mistake["file"], mistake["old"], mistake["new"], encoding=mistake.get("encoding", "utf-8"))
    return folder


def change(file: Path, old: str, new: str, *, encoding: str = "utf-8") -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding=encoding)


def problems(folder: Path) -> tuple[Problem, ...]:
    return check_agents([folder.name], folder.parents[1], programs=PROGRAMS).problems


@cache
def found_in_sound(agent: str) -> frozenset[tuple[str, str]]:
    """Codes and messages of the warnings and notes that the agent has without a mistake."""
    return frozenset((each.code, each.message) for each in problems(AGENTS[agent] / folder_name(agent)))


def errors(reported: tuple[Problem, ...]) -> set[Problem]:
    """What forbids the run, whatever line it has moved to."""
    wrong = (problem for problem in reported if problem.severity is Severity.ERROR)
    return {replace(each, line=None, column=None, end_column=None) for each in wrong}


def name_of(mistake: dict) -> str:
    return f"{mistake['code']} {mistake['move'][1] if 'move' in mistake else mistake['new']}".replace("\n", " ")[:60]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agents_are_sound_before_anything_is_planted(agent: str, tmp_path: Path) -> None:
    shutil.copytree(AGENTS[agent], tmp_path / ".agent")
    assert errors(problems(tmp_path / ".agent" / folder_name(agent))) == set()


@pytest.mark.sample(5)
@pytest.mark.parametrize(
    "mistake",
    [
        pytest.param(each, id=name_of(each), marks=[pytest.mark.whole] * (number % 4 != 0))
        for number, each in enumerate(PLANTED)
    ],
)
def test_a_planted_mistake_is_reported_where_it_is(mistake: dict, tmp_path: Path) -> None:
    folder = plant(mistake, tmp_path)
    new = [each for each in problems(folder) if (each.code, each.message) not in found_in_sound(mistake["agent"])]
    assert len(new) == 1 + mistake.get("more", 0), "one cause, one problem"
    problem = next(each for each in new if each.code == mistake["code"])
    assert_location(problem, mistake, folder)
    assert problem.fix.endswith(".")


def assert_location(problem: Problem, mistake: dict, folder: Path) -> None:
    file = mistake.get("in") or mistake["file"]
    assert problem.file == f".agent/{folder.name}/{file}"
    if mistake.get("no_line"):
        return
    assert problem.line is not None
    line = (folder / file).read_text(encoding="utf-8").split("\n")[problem.line - 1]
    assert (mistake.get("at") or mistake["new"].rstrip("\n")) in line
    if file.endswith(".json"):
        assert 1 <= problem.column < problem.end_column <= len(line) + 1


def test_a_file_that_looks_like_yaml_is_to_be_written_as_json(tmp_path: Path) -> None:
    shutil.copytree(AGENTS["demo"], tmp_path / ".agent")
    (tmp_path / ".agent/demo/steps_registry.json").write_text("# a registry\nsteps:\n  a: 1\n")
    (problem,) = [each for each in problems(tmp_path / ".agent/demo") if each.code == "SF104"]
    assert "looks like YAML" in problem.fix
