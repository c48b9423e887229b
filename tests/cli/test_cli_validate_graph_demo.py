"""`stepflow validate`, `graph` and `demo`: what they print, and their exit codes."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stepflow.cli import main
from tests.checkout import git
from tests.definition.load_cases import cases


@pytest.fixture
def broken(checkout: Path) -> Path:
    """Two mistakes in one registry."""
    path = checkout / ".agent/fixer/steps_registry.json"
    registry = json.loads(path.read_text())
    registry["steps"]["initial.issue"]["transitions"]["next"] = {"target": "continuation.gone"}
    registry["validationSteps"]["closure.issue"]["validationConditions"].append({"validator": "nope"})
    path.write_text(json.dumps(registry, indent=2))
    return checkout


def test_a_sound_agent_validates_with_exit_0(checkout: Path, capsys) -> None:
    assert main(["validate"]) == 0
    assert "fixer: 1 note" in capsys.readouterr().out.splitlines()


def test_a_broken_agent_shows_all_its_problems_with_lines_and_exit_2(broken: Path, capsys) -> None:
    assert main(["validate", "fixer"]) == 2
    out, err = capsys.readouterr()
    lines = (broken / ".agent/fixer/steps_registry.json").read_text().splitlines()
    target = next(number for number, line in enumerate(lines, 1) if "continuation.gone" in line)
    validator = next(number for number, line in enumerate(lines, 1) if '"nope"' in line)
    shown = [line for line in out.splitlines() if re.match(r"error\[|\s*-->", line)]
    shown = [line for pair in pairwise(shown) if pair[0].startswith("error[") for line in pair]
    assert [line[:12] for line in shown[::2]] == ["error[SF343]", "error[SF603]"]
    places = [line.split("--> ")[1].rpartition(":")[0] for line in shown[1::2]]
    assert places == [f".agent/fixer/steps_registry.json:{line}" for line in (target, validator)]
    assert "fixer: 2 errors" in out
    assert err == ""


def test_twenty_five_planted_errors_are_told_at_once_each_on_its_line(tmp_path: Path, monkeypatch, capsys) -> None:
    case = next(case for case in cases("invalid") if case.name == "twenty-five-errors")
    monkeypatch.chdir(case.build(tmp_path))
    text = Path(".agent/demo/steps_registry.json").read_text()
    assert main(["validate", "demo"]) == 2
    out = capsys.readouterr().out
    matches = re.findall(r"^error\[(SF\d{3})\]: .+\n +--> \.agent/demo/steps_registry\.json:(\d+):\d+$", out, re.M)
    assert [code for code, _ in matches] == [one["code"] for one in case.data["problems"]]
    for one, (_, line) in zip(case.data["problems"], matches, strict=True):
        assert what_stands_at(json.loads(text), one["path"]) in text.splitlines()[int(line) - 1]
    assert out.splitlines()[-2] == "demo: 25 errors"


def what_stands_at(document: object, pointer: str) -> str:
    """What the line of a JSON Pointer must show: the value, or the key of an object or a list."""
    key = ""
    for key in pointer.split("/")[1:]:
        document = document[int(key) if isinstance(document, list) else key]  # type: ignore[index]
    return f'"{key}"' if isinstance(document, dict | list) else json.dumps(document)


def test_json_has_every_problem_and_how_many_there_are(broken: Path, capsys) -> None:
    assert main(["validate", "--format", "json"]) == 2
    document = json.loads(capsys.readouterr().out)
    problems = document["problems"]
    assert (document["schema"], document["agents"], document["errors"]) == (1, ["fixer"], 2)
    assert {"SF343", "SF603"} <= {problem["code"] for problem in problems}
    assert all(problem["fix"] and problem["file"].startswith(".agent/fixer/") for problem in problems)


ORDERS = "\n::error::forged\n##[add-path]/evil\u2028\x1b[31m"


def lines_with_orders(text: str) -> list[str]:
    lines = [line for line in re.split(r"[\n\r\u2028]", text) if not line.startswith("::error file=.agent/fixer/")]
    return [line for line in lines if line.lstrip().startswith("::") or "##[" in line or "\x1b" in line]


@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_a_job_that_validates_obeys_no_text_of_a_definition(checkout: Path, capsys, form: str) -> None:
    path = checkout / ".agent/fixer/steps_registry.json"
    registry = json.loads(path.read_text())
    registry["steps"]["initial.issue"]["transitions"]["next"] = {"target": ORDERS}
    path.write_text(json.dumps(registry))
    assert main(["validate", "--format", form]) == 2
    out = capsys.readouterr().out
    assert "forged" in out
    assert lines_with_orders(out) == []
    if form == "json":
        assert any("##[add-path]" in problem["message"] for problem in json.loads(out)["problems"])


def test_a_job_that_runs_obeys_no_text_of_a_definition(checkout: Path, capsys) -> None:
    path = checkout / ".agent/fixer/steps_registry.json"
    path.write_text(path.read_text().replace('"continuation.issue"', json.dumps(ORDERS), 1))
    assert main(["run", "fixer", "--issue", "7"]) == 2
    out, err = capsys.readouterr()
    assert "forged" in err
    assert lines_with_orders(out + err) == []


def test_github_prints_annotations_for_the_diff(broken: Path, capsys) -> None:
    assert main(["validate", "--format", "github"]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("::error file=.agent/fixer/steps_registry.json,line=") for line in lines)


def test_github_prints_nothing_for_a_sound_agent(checkout: Path, capsys) -> None:
    assert main(["validate", "--format", "github"]) == 0
    assert capsys.readouterr().out == ""


def test_where_there_is_no_agent_a_message_says_so(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["validate"]) == 2
    assert f"There is no agent under {tmp_path / '.agent'}" in capsys.readouterr().err


def test_graph_is_mermaid_or_json(checkout: Path, capsys) -> None:
    assert main(["graph", "fixer"]) == 0
    picture = capsys.readouterr().out
    assert picture.startswith("flowchart TD\n")
    assert 's1 -->|"handoff"| s2' in picture
    assert main(["graph", "fixer", "--format", "json"]) == 0
    graph = json.loads(capsys.readouterr().out)
    assert "closure.issue" in json.dumps(graph)


def test_graph_draws_the_path_of_a_run_in_both_forms(checkout: Path, capsys) -> None:
    folder = checkout.parent / "run"
    scripted = ["--provider", "scripted", "--scenario", str(checkout.parent / "scenario.yaml"), "--issue", "7"]
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
        "✗ git-clean failed, attempt 1 of 3 → retry",
        "not done: back to continuation.issue with this retry prompt",
        "│ - `durations.py`",
        "│ - `test_combined.py`",
        "✗ bash mypy (exit 1",
        "✓ git-clean (exit 0",
        "✓ type-check (exit 0",
        "planned: push_branch stepflow/fixer/issue-7",
        "planned: open_pull_request",
        "planned: post_comment",
        "flowchart TD",
        "✓ completed: ",
        f"run folder  {folder / 'run'}",
        "next        This was a dry run: nothing was written.",
    ]
    places = [out.find(text) for text in expected]
    assert -1 not in places, expected[places.index(-1)]
    assert places == sorted(places)
    assert git("status", "--porcelain", cwd=folder / "repository") == ""
    assert json.loads((folder / "run/report.json").read_text())["validated"] is True


def test_the_demo_overwrites_nothing(tmp_path: Path, capsys) -> None:
    (tmp_path / "repository").mkdir()
    assert main(["demo", "--keep", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
