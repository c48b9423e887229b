"""The two agents that are part of this repository: our own in `.agent/fixer`, and the one of `stepflow demo`."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

import pytest

from stepflow.cli import main
from stepflow.definition.loading import load_agent
from stepflow.engine.prompt.template import parse_template
from stepflow.run.scenarios import load_scenario
from tests.checkout import git

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "stepflow/cli/demo"
OURS = ROOT / ".agent/fixer"
OF_DEMO = DEMO / "repository/.agent/fixer"
AGENTS = {"ours": OURS, "demo": OF_DEMO}


@pytest.mark.parametrize("folder", AGENTS.values(), ids=AGENTS)
def test_the_agent_loads_without_any_problem(folder: Path) -> None:
    assert [str(problem) for problem in load_agent(folder).problems] == []


@pytest.mark.parametrize("folder", AGENTS.values(), ids=AGENTS)
def test_every_failure_has_a_retry_prompt_of_its_own_that_can_be_parsed(folder: Path) -> None:
    entry = load_agent(folder).steps["closure.issue"].validation
    assert entry is not None
    assert {one.validator.pattern.name for one in entry.conditions} == set(entry.retry_prompts)
    assert {parse_template(prompt.text).faults for prompt in entry.retry_prompts.values()} == {()}


@pytest.mark.parametrize("folder", AGENTS.values(), ids=AGENTS)
def test_prompts_stay_short(folder: Path) -> None:
    lengths = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in folder.rglob("prompts/**/*.md")}
    assert lengths
    assert {file: lines for file, lines in lengths.items() if lines > 60} == {}


def test_there_are_scenarios_for_a_straight_run_a_repaired_one_and_an_abort() -> None:
    outcomes = [_expected(file) for file in (OURS / "scenarios").glob("*.yaml")]
    assert sorted(outcomes) == ["aborted", "completed", "completed after a refusal"]


@pytest.mark.whole
@pytest.mark.weekly  # our workflow rehearses the agents of every pull request
def test_our_own_agent_does_what_its_scenarios_expect(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("RUNNER_TEMP", str(tmp_path / "temp"))
    # Its type checker is the one of our environment, which a maintainer has activated.
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PATH", f"{Path(sys.prefix, 'bin')}:{os.environ['PATH']}")
    ours = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT).split("\0")
    for file in (name for name in ours if (ROOT / name).is_file()):
        (tmp_path / "checkout" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / "checkout" / file)
    assert main(["rehearse", "fixer", "--repo", str(tmp_path / "checkout")]) == 0, capsys.readouterr().out


def test_the_repository_keeps_the_house_rules_and_a_broken_one_is_named_with_its_location(tmp_path: Path) -> None:
    command = [sys.executable, "-I", OURS / "house_rules.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("Every file keeps the house rules.\n", 0)
    git("init", "--quiet", ".", cwd=tmp_path)
    (tmp_path / "stepflow").mkdir()
    opening = '"""What it is for."""\n'
    long = opening + "def long():\n" + '    """Says it."""\n' + "    a = 1\n"
    texts = {"broken": "def broken(:\n", "bare": ""}
    texts |= {"large": opening + "a = 1\n" * 500, "long": long + "    a = 1\n" * 60}
    texts |= {"shorter": opening + "a = 1\n" * 499, "short": long + "    a = 1\n" * 59}
    for name, text in texts.items():
        (tmp_path / f"stepflow/{name}.py").write_text(text, encoding="utf-8")
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert [line.split()[:2] for line in done.stdout.splitlines()] == [
        ["stepflow/bare.py:1:1:", "H002"],
        ["stepflow/broken.py:1:12:", "H001"],
        ["stepflow/large.py:1:1:", "H003"],
        ["stepflow/long.py:2:1:", "H004"],
    ]


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
