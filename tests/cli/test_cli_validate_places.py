"""`stepflow validate` wherever the agent is named from: a link, an absolute path, its own folder, a hidden folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from stepflow.cli import main

BROKEN = "turns:\n  - outptu: {}\n"


@pytest.fixture
def scenario(checkout: Path) -> Path:
    """A broken scenario of the agent."""
    file = checkout / ".agent/fixer/scenarios/bad.yaml"
    file.parent.mkdir()
    file.write_text(BROKEN)
    return file


def validate(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> list[dict]:
    assert main(["validate", "--format", "json", *words]) == code
    problems = json.loads(capsys.readouterr().out)["problems"]
    return [each for each in problems if each["severity"] != "note"]


@pytest.mark.usefixtures("scenario")
def test_an_agent_behind_a_link_is_refused_and_the_others_are_still_checked(checkout: Path, capsys) -> None:
    outside = checkout.parent / "elsewhere"
    shutil.move(checkout / ".agent/fixer", outside)
    (checkout / ".agent/linked").symlink_to(outside)
    shutil.copytree(outside, checkout / ".agent/fixer")
    problems = validate(capsys)
    assert {(each["agent"], each["code"]) for each in problems} == {("linked", "SF109"), ("fixer", "SF108")}
    assert [each["code"] for each in validate(capsys, "linked")] == ["SF109"]


@pytest.mark.usefixtures("scenario")
def test_an_absolute_path_outside_of_the_current_folder_is_refused(checkout: Path, monkeypatch, capsys) -> None:
    other = checkout.parent / "other"
    other.mkdir()
    monkeypatch.chdir(other)
    assert [each["code"] for each in validate(capsys, str(checkout / ".agent/fixer"))] == ["SF109"]


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("folder", "word", "file"),
    [
        (".", "fixer", ".agent/fixer/scenarios/bad.yaml"),
        (".", ".agent/fixer", ".agent/fixer/scenarios/bad.yaml"),
        (".", "{checkout}/.agent/fixer", ".agent/fixer/scenarios/bad.yaml"),
        (".agent/fixer", ".", "scenarios/bad.yaml"),
        (".agent/fixer", "{checkout}/.agent/fixer", "scenarios/bad.yaml"),
        (".agent", "./fixer", "fixer/scenarios/bad.yaml"),
        (".agent/fixer/prompts", "{checkout}/.agent/fixer", None),
    ],
)
@pytest.mark.usefixtures("scenario")
def test_a_broken_scenario_is_found_wherever_the_agent_is_named_from(
    checkout: Path, monkeypatch, capsys, folder: str, word: str, file: str | None
) -> None:
    monkeypatch.chdir(checkout / folder)
    problems = validate(capsys, word.format(checkout=checkout))
    expected = [("SF109", "fixer")] if file is None else [("SF108", file)]
    assert [(each["code"], each["file"]) for each in problems] == expected


@pytest.mark.usefixtures("scenario")
def test_from_an_agents_own_folder_github_gets_the_path_from_the_root(checkout: Path, monkeypatch, capsys) -> None:
    agent_file = checkout / ".agent/fixer/agent.json"
    agent_file.write_text(agent_file.read_text().replace('"name": "fixer"', '"name": "other"', 1))
    monkeypatch.chdir(checkout / ".agent/fixer")
    assert main(["validate", ".", "--format", "github"]) == 2
    out = capsys.readouterr().out
    assert "file=.agent/fixer/scenarios/bad.yaml" in out
    assert "file=.agent/fixer/agent.json" in out
    assert "/./" not in out


def test_a_scenario_behind_a_link_is_refused(checkout: Path, scenario: Path, capsys) -> None:
    outside = checkout.parent / "bad.yaml"
    scenario.rename(outside)
    scenario.symlink_to(outside)
    (problem,) = validate(capsys)
    assert (problem["code"], problem["file"]) == ("SF109", ".agent/fixer/scenarios/bad.yaml")


def test_a_hidden_folder_is_no_agent(checkout: Path, capsys) -> None:
    shutil.copytree(checkout / ".agent/fixer", checkout / ".agent/.fixer-old")
    assert main(["graph", "nobody"]) == 2
    assert ".fixer-old" not in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["fixer"]])
def test_json_is_one_object_when_there_is_no_agent(tmp_path: Path, monkeypatch, capsys, words: list[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (problem,) = validate(capsys, *words)
    assert problem["code"] == "SF101"
    assert problem["fix"]
