"""What a problem advises is accepted when it is done, and names what is meant."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from load_cases import Case, cases, edit_json

from stepflow.definition.loading import validate_agent
from stepflow.errors import Problem, Severity

REGISTRY = "steps_registry.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    case = next(each for each in cases("valid") if each.name == "issue-flow")
    return case.build(tmp_path) / ".agent/demo"


def fixes(folder: Path, code: str) -> list[str]:
    return [each.fix for each in validate_agent("demo", root=folder.parents[1]) if each.code == code]


@pytest.mark.parametrize(
    ("pointer", "value", "fix"),
    [
        ("/validators/git-clean/timeout", "600", 'Write a number without quotes, for example "timeout": 600.'),
        ("/validators/git-clean/timeout", "soon", 'Write a number without quotes, for example "timeout": 600.'),
        ("/validators/git-clean/timeout", 0, "Write more than 0.0."),
        (
            "/steps/initial.issue/uvVariables",
            "issue",
            'Write a list in brackets, for example "uvVariables": […].',
        ),
        (
            "/steps/initial.issue/usesStdin",
            "True",
            'Write true or false without quotes, for example "usesStdin": true.',
        ),
        ("/steps/initial.issue/name", 7, 'Write a string in double quotes, for example "name": "…".'),
    ],
)
def test_a_wrong_value_is_told_with_an_example_of_its_kind(folder: Path, pointer: str, value: object, fix: str) -> None:
    edit_json(folder / REGISTRY, "set", pointer, value)
    problems = validate_agent("demo", root=folder.parents[1])
    assert fix in [each.fix for each in problems if each.path == pointer]


def test_an_approval_of_an_entry_step_moves_to_a_step_that_can_wait(folder: Path) -> None:
    edit_json(folder / REGISTRY, "set", "/steps/initial.issue/approval", {"by": "write"})
    assert fixes(folder, "SF355") == ['Move "approval" to step "continuation.issue".']
    edit_json(folder / REGISTRY, "set", "/steps/continuation.issue/approval", {"by": "write"})
    assert fixes(folder, "SF355") == ['Remove it: "continuation.issue" waits for approval already.']
    edit_json(folder / REGISTRY, "remove", "/steps/initial.issue/approval")
    assert fixes(folder, "SF355") == []


def test_a_variable_that_nothing_supplies_is_not_to_be_declared(folder: Path) -> None:
    prompt = folder / "prompts/steps/continuation/issue/f_default.md"
    prompt.write_text(prompt.read_text() + "{uv-nobody} {uv-plan}\n")
    assert fixes(folder, "SF505") == []
    assert fixes(folder, "SF507") == ["Declare a parameter, hand it off in a step, or remove it."]


@dataclass(frozen=True, kw_only=True)
class Edit:
    """A change at a JSON Pointer of a file: give the key another name, put `value` for what is there (which `wrong` is,
    where that is said), or remove it."""

    word: Literal["rename", "set", "remove"]
    pointer: str
    value: object = None
    wrong: str | None = None

    def follow(self, file: Path) -> bool:
        """Change the file; False where it has no such place."""
        outer, _, key = self.pointer.rpartition("/")
        try:
            node = json.loads(file.read_text())
            for part in outer.split("/")[1:]:
                node = node[int(part) if isinstance(node, list) else part.replace("~1", "/")]
            old = node[int(key)] if isinstance(node, list) else node.get(key)
        except (AttributeError, LookupError, TypeError, ValueError):
            return False
        if self.wrong is not None and old != self.wrong:
            return False
        if self.word != "set":
            edit_json(file, "remove", self.pointer)
        if self.word != "remove":
            edit_json(
                file,
                "set",
                f"{outer}/{self.value}" if self.word == "rename" else self.pointer,
                old if self.word == "rename" else self.value,
            )
        return True


def advised_edit(problem: Problem) -> Edit | None:
    """What the advice says to do at the problem's place, where no choice is left to whoever does it."""
    pointer = problem.path
    if meant := re.search(r'"([^"]*)"[^"]*\(did you mean "([^"]*)"\?\)$', problem.message):
        if pointer.rpartition("/")[2] == meant[1]:
            return Edit(word="rename", pointer=pointer, value=meant[2])
        return Edit(word="set", pointer=pointer, value=meant[2], wrong=meant[1])
    if written := re.match(r'(?:Write|Add) "(\w+)": ([^<…]+?)(, for example|, or .*|, the folder .*)?\.$', problem.fix):
        is_own = pointer.rpartition("/")[2] == written[1]
        with contextlib.suppress(ValueError):
            value = json.loads(written[2])
            return Edit(word="set", pointer=pointer if is_own else f"{pointer}/{written[1]}", value=value)
    if re.match(r'Remove (it|the key|"\w+")(?: where .*|, or .*|: .*)?\.$', problem.fix):
        return Edit(word="remove", pointer=pointer)
    return None


@pytest.mark.sample(20)
@pytest.mark.whole
@pytest.mark.parametrize(
    "case", [each for each in cases("invalid") if "arguments" not in each.data], ids=lambda case: case.name
)
def test_advice_that_leaves_no_choice_helps_when_it_is_followed(case: Case, tmp_path: Path) -> None:
    root = case.build(tmp_path / "given")
    problems = validate_agent(case.agent, root=root, **case.options)
    known = {each.message for each in problems}
    for number, problem in enumerate(problems):
        edit = advised_edit(problem) if problem.file.endswith(".json") else None
        mended = shutil.copytree(root, tmp_path / str(number), symlinks=True)
        if edit is None or not edit.follow(mended / problem.file):
            continue
        left = validate_agent(case.agent, root=mended, **case.options)
        assert problem.message not in [each.message for each in left], problem
        # Nobody has looked yet at what stands behind a key whose name was not known.
        new = [one for one in left if one.severity is Severity.ERROR and one.message not in known]
        assert edit.word == "rename" or not [one for one in new if one.path.startswith(edit.pointer)], problem


@pytest.mark.whole
def test_enough_advice_leaves_no_choice(tmp_path: Path) -> None:
    """Else the test above would look at nothing."""
    edits = [
        advised_edit(problem)
        for case in cases("invalid")[::3]
        if "arguments" not in case.data
        for problem in validate_agent(case.agent, root=case.build(tmp_path / case.name), **case.options)
    ]
    words = [edit.word for edit in edits if edit]
    assert min(words.count(word) for word in ("rename", "set", "remove")) >= 2
