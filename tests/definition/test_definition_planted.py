"""Mistakes of authors, planted one at a time: each is reported where it is, with what to change."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from difflib import get_close_matches
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


#: What a message may say so exactly that a program can do it.
MEANT = re.compile(r'did you mean "([^"]+)"')
EXAMPLE = re.compile(r'Write ("\w+": "[^"]+"), for example\.')
WRITE = re.compile(r'Write "([^"]+)"')


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


#: The problems whose message always says exactly what to write.
EXACT = re.compile(r"SF(112|113|203|304|321|324|343|403|407|410|501|509|51[35]|60[13-7]|703)")


@pytest.mark.parametrize("agent", AGENTS)
def test_the_agents_are_sound_before_anything_is_planted(agent: str, tmp_path: Path) -> None:
    shutil.copytree(AGENTS[agent], tmp_path / ".agent")
    assert errors(problems(tmp_path / ".agent" / folder_name(agent))) == set()


def test_there_are_more_than_forty_and_no_two_are_the_same() -> None:
    texts = [str(mistake) for mistake in PLANTED]
    assert len(texts) == len(set(texts)) > 40


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
    before = problems(folder)
    new = [each for each in before if (each.code, each.message) not in found_in_sound(mistake["agent"])]
    assert len(new) == 1 + mistake.get("more", 0), "one cause, one problem"
    problem = next(each for each in new if each.code == mistake["code"])
    assert_location(problem, mistake, folder)
    assert problem.fix.endswith(".")
    if not apply_fix(problem, mistake, folder):
        assert not EXACT.fullmatch(mistake["code"]), "its message says what to write"
        return

    after = problems(folder)
    assert (problem.code, problem.message) not in [(each.code, each.message) for each in after]
    assert errors(after) <= errors(before)


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


def apply_fix(problem: Problem, mistake: dict, folder: Path) -> bool:
    """Do what the message says; False where it leaves to the author what to write."""
    if "by_hand" in mistake:
        mend_by_hand(problem, mistake["by_hand"], folder / mistake.get("file", ""), folder)
    elif meant := MEANT.search(f"{problem.message}. {problem.fix}"):
        write_at(problem, folder, lambda shown: closest_replaced(shown, meant[1]))
    elif example := EXAMPLE.fullmatch(problem.fix):
        write_at(problem, folder, lambda shown: shown.replace("{", f"{{ {example[1]},", 1))
    elif "is missing or empty" in problem.message and (path := WRITE.match(problem.fix)):
        file = folder / path[1]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("Do it.\n", encoding="utf-8")
    else:
        return False
    return True


def write_at(problem: Problem, folder: Path, change_text: Callable[[str], str]) -> None:
    """Change the file from where the problem is shown on."""
    assert problem.line is not None
    file = folder.parents[1] / problem.file
    lines = file.read_text(encoding="utf-8").split("\n")
    before, shown = "\n".join(lines[: problem.line - 1]), "\n".join(lines[problem.line - 1 :])
    at = (problem.column or 1) - 1
    file.write_text(f"{before}\n{shown[:at]}{change_text(shown[at:])}", encoding="utf-8")


def closest_replaced(shown: str, meant: str) -> str:
    """The word closest to what was meant, replaced in the first line and where the next one repeats it."""
    line, following, rest = (*shown.split("\n", 2), "", "")[:3]
    (wrong,) = get_close_matches(meant, re.findall(r"[\w./#:-]*[\w./#-]", line), n=1, cutoff=0.1)
    return "\n".join((line.replace(wrong, meant, 1), following.replace(f'"{wrong}"', f'"{meant}"'), rest))


def mend_by_hand(problem: Problem, by_hand: dict, file: Path, folder: Path) -> None:
    assert by_hand["says"] in f"{problem.message}. {problem.fix}"
    if "write" in by_hand:
        name, text = by_hand["write"]
        (folder / name).write_text(text, encoding="utf-8")
    else:
        change(file, by_hand["old"], by_hand["new"])


def test_a_file_that_looks_like_yaml_is_to_be_written_as_json(tmp_path: Path) -> None:
    shutil.copytree(AGENTS["demo"], tmp_path / ".agent")
    (tmp_path / ".agent/demo/steps_registry.json").write_text("# a registry\nsteps:\n  a: 1\n")
    (problem,) = [each for each in problems(tmp_path / ".agent/demo") if each.code == "SF104"]
    assert "looks like YAML" in problem.fix
