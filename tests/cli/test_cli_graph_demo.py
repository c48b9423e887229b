"""`stepflow graph` and `demo`: what they print, and their exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stepflow.cli import main
from tests.checkout import git
from tests.docs.page import ROOT


@pytest.mark.whole
def test_graph_draws_the_path_of_a_run_in_both_forms(checkout: Path, capsys) -> None:
    folder = checkout.parent / "run"
    scripted = ["--scenario", str(checkout.parent / "scenario.yaml"), "--issue", "7"]
    assert main(["run", "fixer", *scripted, "--run-folder", str(folder)]) == 0
    capsys.readouterr()
    assert main(["graph", "fixer", "--run", str(folder)]) == 0
    mermaid = capsys.readouterr().out
    assert 's1 ==>|"handoff"| s2' in mermaid
    assert 's1 -->|"repeat"| s1' in mermaid
    for words, walked in (([], 0), (["--run", str(folder)], 4)):
        assert main(["graph", "fixer", "--format", "svg", *words]) == 0
        picture = ElementTree.fromstring(capsys.readouterr().out)
        assert picture.tag == "{http://www.w3.org/2000/svg}svg"
        assert len(picture.findall("./{*}path[@class='arrow walked']")) == walked


@pytest.mark.parametrize("words", [["graph", "nobody"], ["graph", "fixer", "--run", "/no/such/run"]])
def test_graph_names_what_it_cannot_find(checkout: Path, capsys, words: list[str]) -> None:
    assert main(words) == 2
    assert words[-1] in capsys.readouterr().err


@pytest.mark.whole
def test_the_demo_shows_the_whole_method(tmp_path: Path, capsys) -> None:
    folder = tmp_path / "demo"
    assert main(["demo", "--keep", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    expected = [
        "A repository with a bug, an agent and an issue",
        "Iteration 3 of 10 · closure.issue (closure)",
        "✓ git-clean (exit 0",
        "✗ tests failed, attempt 1 of 3 → retry",
        "not done: back to continuation.issue with this retry prompt",
        "│ - `test_a_text_that_is_no_duration_is_refused`",
        "✓ bash python3 -m unittest",
        "✓ git-clean (exit 0",
        "✓ tests (exit 0",
        "planned: push_branch stepflow/fixer/issue-7",
        "planned: open_pull_request",
        "planned: post_comment",
        "✓ completed: ",
        f"run folder  {folder / 'run'}",
        "next        This was a dry run with scripted answers: nothing was written to GitHub.",
    ]
    place = 0
    for text in expected:
        assert text in out[place:], text
        place = out.index(text, place) + len(text)
    assert git("status", "--porcelain", cwd=folder / "repository") == ""
    assert json.loads((folder / "run/report.json").read_text())["validated"] is True


def test_every_check_of_the_demo_needs_only_git_and_python() -> None:
    """`pipx install` brings no extra."""
    registry = ROOT / "stepflow/cli/demo/repository/.agent/fixer/steps_registry.json"
    checks = json.loads(registry.read_text(encoding="utf-8"))["validators"].values()
    assert [check["command"] for check in checks] == ["git status --porcelain", "python3 -m unittest"]


def test_the_demo_overwrites_nothing(tmp_path: Path, capsys) -> None:
    (tmp_path / "repository").mkdir()
    assert main(["demo", "--keep", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_graph_draws_what_a_run_accepts(checkout: Path, capsys) -> None:
    registry = checkout / ".agent/fixer/steps_registry.json"
    written = registry.read_text().replace('"allowedIntents"', '"failFast": false, "allowedIntents"', 1)
    registry.write_text(written)
    assert main(["graph", "fixer"]) == 2
    assert "SF328" in capsys.readouterr().err
    assert main(["graph", "fixer", "--allow", "spec-violations"]) == 0
    assert capsys.readouterr().out.startswith("flowchart TD\n")


def test_graph_as_json_is_one_object_for_a_broken_definition_too(checkout: Path, capsys) -> None:
    registry = checkout / ".agent/fixer/steps_registry.json"
    registry.write_text(registry.read_text().replace('"entryStep"', '"entryStop"', 1))
    assert main(["graph", "fixer", "--format", "json"]) == 2
    problems = json.loads(capsys.readouterr().out)["problems"]
    assert [each["code"] for each in problems if each["severity"] == "error"] == ["SF112"]
