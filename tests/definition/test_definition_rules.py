"""Every rule is explained: why it matters, and an example of wrong and right that is one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from load_cases import DEFINITIONS, edit_json

from stepflow.definition.loading import validate_agent
from stepflow.definition.rules import rules
from stepflow.errors import Example, LintRule
from tests.golden import assert_golden

ROOT = Path(__file__).parents[2]
OPTIONS = {"SF612": {"demand_checks": True}, "SF329": {"allow_spec_violations": True}}
#: Shown as text: the whole agent, a broken file, a missing key, a file outside of the agent, one with a digest (SF357
#: is planted by the tests of its rule), a command line.
NOT_PLANTED = {"SF101", "SF104", "SF115", "SF116", "SF209", "SF214", "SF215", "SF357", "SF608"}


def agent_for(rule: LintRule, root: Path) -> Path:
    """The sound agent whose files the examples name."""
    checks = rule.code.startswith("SF7")
    source = DEFINITIONS / "valid/check-flow/.agent" if checks else ROOT / ".agent"
    shutil.copytree(source, root / ".agent", ignore=shutil.ignore_patterns("scenarios"))
    return root / ".agent" / ("demo" if checks else "fixer")


def plant(examples: tuple[Example, ...], folder: Path) -> None:
    for example in examples:
        if example.language == "text":
            remove(folder / example.file, example.pointer)
        elif example.pointer:
            edit_json(folder / example.file, "set", example.pointer, json.loads(example.text))
        else:
            (folder / example.file).write_text(example.text + "\n", encoding="utf-8")


def remove(file: Path, pointer: str) -> None:
    assert pointer, "a text without a pointer cannot be planted"
    edit_json(file, "remove", pointer)


def codes(rule: LintRule, folder: Path) -> set[str]:
    problems = validate_agent(folder.name, root=folder.parents[1], **OPTIONS.get(rule.code, {}))
    return {problem.code for problem in problems}


@pytest.mark.sample(21)
@pytest.mark.parametrize(
    "rule", [rule for rule in rules().values() if rule.code not in NOT_PLANTED], ids=lambda rule: rule.code
)
def test_the_wrong_example_of_a_rule_breaks_it_and_the_right_one_does_not(rule: LintRule, tmp_path: Path) -> None:
    folder = agent_for(rule, tmp_path)
    plant(rule.wrong, folder)
    assert rule.code in codes(rule, folder)
    plant(rule.right, folder)
    same = {(one.file, one.pointer) for one in rule.right} == {(one.file, one.pointer) for one in rule.wrong}
    if same or rule.code in ADDS:
        assert rule.code not in codes(rule, folder)


#: Right stands in another place than wrong, and mends it without taking it away.
ADDS = {"SF206", "SF306", "SF330", "SF502", "SF503", "SF507"}


def test_every_code_has_a_reason_and_both_examples_and_there_is_no_other() -> None:
    for rule in rules().values():
        assert rule.why.endswith("."), rule.code
        assert len(rule.why) < 320, rule.code
        assert rule.wrong, rule.code
        assert rule.right, rule.code
        assert all(one.file and one.text for one in (*rule.wrong, *rule.right)), rule.code
    text = (ROOT / "stepflow/definition/rules.md").read_text(encoding="utf-8")
    headings = [line.removeprefix("## ") for line in text.splitlines() if line.startswith("## ")]
    assert headings == list(rules())
    assert text.count("```") == 2 * sum(len(rule.wrong) + len(rule.right) for rule in rules().values())


def test_no_rule_changes_its_severity_unseen() -> None:
    lines = (f"{rule.code} {rule.severity}\n" for rule in rules().values())
    assert_golden("definition/severities.txt", "".join(lines))
