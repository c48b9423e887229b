"""Scenario files: every shape that docs/scenarios.md shows, and a message with line and place for every mistake."""

from __future__ import annotations

import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepflow.domain.conversation import StopReason
from stepflow.domain.effect import EffectKind
from stepflow.domain.run import Issue
from stepflow.domain.words import Outcome
from stepflow.errors import InputError
from stepflow.model.scenario import Scenario, scenario_text
from stepflow.run.scenarios import load_scenario, parse_scenario

FULL = """\
params: { issue: 7 }
issue: { number: 7, title: Fix the parser, body: "It fails on 2026-01-01.", labels: [bug] }
turns:
  - expect_step: initial.issue
    expect_prompt: ["parser"]
    tools:
      - bash: { command: "python -m pytest -q" }
      - write: { file_path: since.txt, content: 2026-01-01 }
  - output: { next_action: { action: next } }
  - text: "prose, no JSON"
  - error: { status: 529, retry_after: 2 }
  - error: { reset: true }
  - repeat: 3
  - text: I will not.
    stop_reason: refusal
expect:
  outcome: completed
  steps: [initial.issue, continuation.issue, closure.issue]
  effects: [push_branch, open_pull_request, post_comment]
  validators: { git-clean: [fail, pass] }
  files: { hello.txt: "hi\\n", gone.txt: null }
"""


def test_a_file_with_everything_is_read(tmp_path):
    path = tmp_path / "happy.yaml"
    path.write_text(FULL)
    scenario = load_scenario(path)
    assert scenario.params == {"issue": 7}
    assert scenario.issue.to_issue() == Issue(
        number=7, title="Fix the parser", body="It fails on 2026-01-01.", labels=("bug",)
    )
    first, second, third, overload, reset, repeat, refusal = scenario.turns
    assert first.tools == (
        {"bash": {"command": "python -m pytest -q"}},
        {"write": {"file_path": "since.txt", "content": "2026-01-01"}},
    )
    assert (first.expect_step, first.expect_prompt) == ("initial.issue", ("parser",))
    assert second.output == {"next_action": {"action": "next"}}
    assert third.text == "prose, no JSON"
    assert (overload.error.status, overload.error.retry_after, reset.error.reset) == (529, 2, True)
    assert repeat.repeat == 3
    assert refusal.stop_reason is StopReason.REFUSAL
    assert scenario.expect.outcome is Outcome.COMPLETED
    assert scenario.expect.effects[0] is EffectKind.PUSH_BRANCH
    assert scenario.expect.files == {"hello.txt": "hi\n", "gone.txt": None}
    assert scenario.expect.validators == {"git-clean": ("fail", "pass")}


def test_turns_may_be_keyed_by_step():
    scenario = parse_scenario("steps: {initial.issue: [{text: a}, {repeat: 2}], closure.issue: [{output: {}}]}")
    assert list(scenario.queues()) == ["initial.issue", "closure.issue"]


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
LONG = f"a: &a {'x' * 1_000_000}\nb: [{', '.join(['*a'] * 50)}]\n"
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 5000))
WRONG = {
    "an unknown key": ("turns:\n  - text: a\n  - txet: b\n", 3, "turns[1].txet"),
    "no reply": ("turns:\n  - expect_step: a\n", 2, "turns[0]: write one of"),
    "two replies": ("turns:\n  - text: a\n    output: {}\n", 2, "`output` is the whole answer"),
    "an error with more": ("turns:\n  - error: {status: 500}\n    text: a\n", 2, "`error` goes only with"),
    "a repeat with more": ("turns: [{text: a}, {repeat: 1, expect_step: x}]", 1, "`repeat` must be the only key"),
    "a tool without input": ("turns:\n  - tools:\n    - bash: ls\n", 3, "turns[0].tools[0].bash"),
    "an error of no kind": ("turns: [{error: {}}]", 1, "either `status"),
    "an unknown outcome": ("turns: []\nexpect:\n  outcome: fine\n", 3, "expect.outcome"),
    "neither turns nor steps": ("params: {}\n", 1, "either `turns`"),
    "nothing": ("", 1, "either `turns`"),
    "a forgotten dash": ("turns:\n  - text: a\n    text: b\n", 3, "'text' appears twice"),
    "broken YAML": ("turns:\n  - text: 'a\n", 3, "cannot be read as YAML"),
    "a Python object": ("turns: !!python/name:os.system x\n", 1, "cannot be read as YAML"),
    "a list as a key": ("? [a]\n: b\n", 1, "cannot be read as YAML"),
    "a node that holds itself": ("turns: &a [*a]\n", None, "cannot be read as YAML"),
    "aliases that stand for billions": (BOMB, None, "more than 50000 nodes with its aliases written out"),
    "aliases that stand for gigabytes": (LONG, None, "its aliases stand for too much text"),
    "aliases below aliases": (CHAIN, None, "nested more than 100 levels deep"),
    "a number of a hundred thousand digits": (f"turns: {'1:' * 100_000}1", 1, "a value other than text is too long"),
    "sixty thousand nodes": ("turns: [" + "a," * 60_000 + "]", 1, "more than 50000 nodes"),
    "a control character": ("turns: [{text: \x07}]", None, "cannot be read as YAML"),
}


@pytest.mark.whole
@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_named_with_file_line_and_key(tmp_path, case):
    text, line, words = WRONG[case]
    path = tmp_path / "s.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_scenario(path)
    assert words in caught.value.message
    assert caught.value.message.startswith(f"{path}:{line}:" if line else str(path))
    assert "A scenario has `turns`" in caught.value.hint
    assert "Value error" not in caught.value.message


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(InputError) as caught:
        parse_scenario("turns:\n  - txet: a\n  - text: 1\nissue: {}\n", name="s.yaml")
    assert [line.split(": ")[0] for line in caught.value.message.splitlines()] == ["s.yaml:4", "s.yaml:2", "s.yaml:3"]


def huge(path):
    with path.open("wb") as file:
        file.truncate(1024**3)
    return path


def test_a_file_that_is_not_there_or_no_text_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_scenario(tmp_path / "none.yaml")
    with pytest.raises(InputError, match="is not a regular file"):
        load_scenario(tmp_path)
    with pytest.raises(InputError, match="is larger than 4 MiB"):
        load_scenario(huge(tmp_path / "huge.yaml"))
    (tmp_path / "latin.yaml").write_bytes("turns: [{text: für}]".encode("latin-1"))
    with pytest.raises(InputError, match="UTF-8"):
        load_scenario(tmp_path / "latin.yaml")


def test_a_scenario_is_read_from_its_own_file_in_the_repository(tmp_path):
    root, outside = tmp_path / "repository", tmp_path / "outside"
    for folder in (root / "kept", outside):
        folder.mkdir(parents=True)
        (folder / "s.yaml").write_text("turns: []\nsecret line: 1\n")
    (root / "s.yaml").symlink_to(outside / "s.yaml")
    (root / "inner.yaml").symlink_to("kept/s.yaml")
    (root / "linked").symlink_to(outside)
    os.mkfifo(root / "pipe.yaml")
    refusals = {
        "s.yaml": "is a symbolic link",
        str(root / "s.yaml"): "is a symbolic link",
        "inner.yaml": "is a symbolic link",
        "linked/s.yaml": 'is reached through the symbolic link "linked"',
        "../outside/s.yaml": "lies outside",
        "pipe.yaml": "is not a regular file",
        "/dev/zero": "is not a regular file",
    }
    for path, words in refusals.items():
        with pytest.raises(InputError) as caught:
            load_scenario(path, root=root)
        assert words in caught.value.message, path
        assert "secret" not in str(caught.value)
    (root / "kept/s.yaml").write_text("turns: []\n")
    assert load_scenario("kept/s.yaml", root=root).turns == ()


def test_anchors_and_aliases_of_an_ordinary_size_are_read():
    text = "turns:\n- output: &done {closing: true}\n- output: *done\n- output: {<<: *done, more: 1}\n"
    assert [turn.output for turn in parse_scenario(text).turns] == [{"closing": True}] * 2 + [
        {"closing": True, "more": 1}
    ]


WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.whole
@settings(max_examples=100)
@given(text=WORDS, output=st.dictionaries(WORDS, VALUES, max_size=3), given_input=st.dictionaries(WORDS, VALUES))
def test_any_text_answer_and_tool_input_survives_being_written(text, output, given_input):
    turns = [{"text": text}, {"output": output}, {"tools": [{"bash": given_input}]}]
    scenario = Scenario.model_validate({"turns": turns}, strict=False)
    assert parse_scenario(scenario_text(scenario)) == scenario


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", ".", "", "a\\b", "a\0b"])
def test_a_file_outside_the_checkout_is_no_file_of_a_scenario(path):
    with pytest.raises(InputError, match="relative and without"):
        parse_scenario(json.dumps({"turns": [], "expect": {"files": {path: None}}}))
