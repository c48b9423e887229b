"""`stepflow rehearse`: scenarios played in copies, a table, what differs, and exit 1 where something does."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from stepflow.cli import main
from tests.checkout import git

TURNS = """\
issue: { number: 7, title: "世界に挨拶する 🌍", body: "رحّب بالعالم", labels: ["🐛 バグ", مهم] }
turns:
  - expect_step: initial.issue
    expect_prompt: ["世界に挨拶する 🌍", "رحّب بالعالم"]
    output: { stepId: initial.issue, next_action: { action: next, reason: it is clear }, understanding: x }
  - expect_step: continuation.issue
    tools:
      - bash: { command: "echo 'hello, world' > greeting.txt && git commit -qam 'Greet the world'" }
  - output: { stepId: continuation.issue, next_action: { action: handoff, reason: it is done }, summary: y }
  - expect_step: closure.issue
    output: { stepId: closure.issue, next_action: { action: closing, reason: the world is greeted } }
"""
EXPECT = """\
expect:
  outcome: completed
  steps: [initial.issue, continuation.issue, closure.issue]
  validators: { git-clean: [pass], greeting: [pass] }
  effects: [push_branch, open_pull_request, post_comment, add_labels, remove_labels]
  files: { greeting.txt: "hello, world\\n", absent.txt: null }
"""


def put(checkout: Path, name: str = "greets", text: str = TURNS + EXPECT) -> Path:
    """Write a scenario of the agent."""
    file = checkout / f".agent/fixer/scenarios/{name}.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def rehearse(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """The exit code, and what stands on the terminal."""
    code = main(["rehearse", *words])
    out, err = capsys.readouterr()
    return code, out + err


def played(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, dict]:
    """Each scenario that was played, by its name; none of them brought a traceback."""
    main(["rehearse", "--json", *words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return {each["scenario"]: each for each in json.loads(out)["scenarios"]}


@pytest.mark.whole
def test_approvals_are_taken_as_given_unless_the_run_is_expected_to_wait(checkout: Path, capsys) -> None:
    registry = checkout / ".agent/fixer/steps_registry.json"
    document = json.loads(registry.read_text())
    document["steps"]["continuation.issue"]["approval"] = {"by": "admin"}
    registry.write_text(json.dumps(document))
    put(checkout)
    put(checkout, "waits", f"{TURNS}expect: {{ outcome: awaiting_approval, steps: [initial.issue] }}\n")
    scenarios = played(capsys)
    assert [each["passed"] for each in scenarios.values()] == [True, True]
    given = 'the approval before step "continuation.issue" was granted'
    assert scenarios["greets"]["notes"] == [given]
    assert scenarios["waits"]["notes"] == ["3 turns of the scenario were not played"]


@pytest.mark.whole
def test_what_comes_as_expected_is_a_table_and_exit_0(checkout: Path, capsys) -> None:
    put(checkout)
    code, output = rehearse(capsys)
    assert code == 0, output
    assert re.search(r"^✓  fixer  greets +3 +\d+\.\d$", output, re.M)
    assert output.endswith("1 scenario, as expected\n")


DIFFERENT = """\
expect:
  outcome: aborted # as it should be
  steps: [initial.issue, closure.issue]
  validators: { git-clean: [fail, pass], tests: [pass] }
  effects: [post_comment]
  files: { greeting.txt: "こんばんは\\n", absent.txt: "there" }
"""


@pytest.mark.whole
def test_every_difference_is_shown_with_what_was_expected_and_what_came(checkout: Path, capsys) -> None:
    put(checkout, text=TURNS + DIFFERENT)
    code, output = rehearse(capsys)
    assert code == 1
    lines = [re.sub(r" {2,}", "  ", line.strip()) for line in output.splitlines()]
    for line in (
        "ended as completed, expected aborted: the world is greeted",
        "1  initial.issue  initial.issue",
        "≠  2  –  continuation.issue",
        "3  closure.issue  closure.issue",
        "≠  git-clean  fail, pass  pass",
        "≠  tests  pass  –",
        "file greeting.txt:",
        "≠  1  こんばんは  hello, world",
        "≠  a file of 5 characters  no such file",
    ):
        assert line in lines, output
    # How and why the run ended comes before the details.
    assert lines[1].startswith("ended as completed"), output
    assert output.splitlines()[-1] == "1 scenario, 1 not as expected: fixer/greets"


@pytest.mark.whole
def test_update_makes_it_expected_and_changes_nothing_else(checkout: Path, capsys) -> None:
    file = put(checkout, text=TURNS + DIFFERENT)
    code, output = rehearse(capsys, "--update")
    assert (code, "1 updated" in output) == (0, True), output
    written = file.read_text(encoding="utf-8")
    assert written.startswith(TURNS)
    assert yaml.safe_load(written)["expect"] == yaml.safe_load(EXPECT)["expect"]
    assert rehearse(capsys)[0] == 0


@pytest.mark.whole
def test_a_scenario_without_expect_must_only_complete_and_can_be_given_one(checkout: Path, capsys) -> None:
    file = put(checkout, text=TURNS)
    assert rehearse(capsys)[0] == 0
    assert rehearse(capsys, "--update")[0] == 0
    expected = yaml.safe_load(EXPECT)["expect"]
    del expected["files"]
    assert yaml.safe_load(file.read_text(encoding="utf-8"))["expect"] == expected


@pytest.mark.whole
def test_a_run_that_does_not_fit_its_scenario_differs_and_is_not_accepted(checkout: Path, capsys) -> None:
    text = TURNS.replace("expect_step: closure.issue", "expect_step: initial.issue")
    file = put(checkout, text=text)
    code, output = rehearse(capsys, "--update")
    assert code == 1
    assert "expects step 'initial.issue', but step 'closure.issue' asks" in output
    assert "not updated: a run that ends model_failed was not played through" in output
    assert file.read_text(encoding="utf-8") == text


@pytest.mark.whole
def test_a_scenario_may_expect_that_a_run_does_not_begin(checkout: Path, capsys) -> None:
    put(checkout, "without-issue", "turns: []\nexpect: { outcome: invalid_definition }\n")
    put(checkout, "broken", "turns: [\n")
    code, output = rehearse(capsys)
    assert code == 1
    assert "✓ fixer/without-issue" in output
    assert ".agent/fixer/scenarios/broken.yaml:2: this cannot be read as YAML" in output
    assert str(checkout) not in output


@pytest.mark.whole
def test_names_choose_agents_and_scenarios(checkout: Path, capsys) -> None:
    put(checkout)
    put(checkout, "別の道")
    assert "2 scenarios" in rehearse(capsys, "fixer")[1]
    assert "1 scenario, as expected" in rehearse(capsys, "fixer/別の道")[1]
    code, output = rehearse(capsys, "fixer/nope")
    assert (code, "Its scenarios: greets, 別の道" in output) == (2, True)
    code, output = rehearse(capsys, "../fixer")
    assert (code, "The agents of this repository: fixer" in output) == (2, True)


@pytest.mark.whole
def test_an_agent_without_scenarios_is_named_and_none_at_all_is_exit_2(checkout: Path, capsys) -> None:
    code, output = rehearse(capsys)
    assert (code, "has a scenario" in output) == (2, True)
    put(checkout)
    (checkout / ".agent/other").mkdir()
    (checkout / ".agent/other/agent.json").write_text("{}")
    code, output = rehearse(capsys)
    assert (code, "! other has no scenario" in output) == (0, True)
    # One that is asked for is not passed over.
    for names in (["other"], ["fixer", "other"]):
        code, output = rehearse(capsys, *names)
        assert (code, 'The agent "other" has no scenario.' in output) == (2, True), output


def test_the_errors_of_a_definition_come_before_anything_is_played(checkout: Path, capsys) -> None:
    put(checkout)
    path = checkout / ".agent/fixer/steps_registry.json"
    path.write_text(path.read_text().replace('"continuation.issue"', '"nowhere"', 1))
    code, output = rehearse(capsys)
    assert code == 2
    assert ".agent/fixer/steps_registry.json:" in output
    assert "✓" not in output


@pytest.mark.whole
def test_json_is_one_object_and_junit_a_file_that_can_be_read(checkout: Path, capsys) -> None:
    put(checkout)
    put(checkout, "differs", TURNS + DIFFERENT)
    file = checkout.parent / "junit.xml"
    assert main(["rehearse", "--json", "--junit", str(file)]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert (out.count("\n"), document["success"], document["outcome"]) == (1, False, "validation_failed")
    assert [each["passed"] for each in document["scenarios"]] == [False, True]
    assert document["scenarios"][0]["differences"][0]["rows"] == [
        {"where": "", "expected": "aborted", "came": "completed"}
    ]
    assert "2 scenarios, 1 not as expected" in err
    suites = ElementTree.parse(file).getroot()
    assert (suites.get("tests"), suites.get("failures")) == ("2", "1")
    (failure,) = suites.iter("failure")
    assert "こんばんは" in str(failure.text)
    assert Path(document["scenarios"][0]["run_folder"], "report.json").is_file()


@pytest.mark.whole
@pytest.mark.parametrize("path", ["/no/such/folder/junit.xml", "/proc/self/mem/junit.xml", "."])
def test_a_junit_file_that_cannot_be_written_is_told_before_anything_is_played(
    checkout: Path, capsys, path: str
) -> None:
    put(checkout)
    code, output = rehearse(capsys, "--junit", path)
    assert (code, path in output, "✓" in output) == (2, True, False), output


def _dangling(checkout: Path) -> None:
    (checkout / ".agent/fixer/scenarios/broken.yaml").symlink_to("nowhere.yaml")


def _nested(checkout: Path) -> None:
    put(checkout, "broken", "turns: " + "[" * 5000)


def _removes_the_checkout(checkout: Path) -> None:
    removed = "find . -delete; cd ..; rm -rf checkout; git init -q"
    put(checkout, "broken", TURNS.replace("echo 'hello, world' > greeting.txt", removed) + EXPECT)


BROKEN = [_dangling, _nested, _removes_the_checkout]


@pytest.mark.whole
@pytest.mark.parametrize(("break_one", "update"), [(each, bool(at % 2)) for at, each in enumerate(BROKEN)])
def test_one_bad_scenario_does_not_keep_the_others_from_being_played(
    checkout: Path, capsys, break_one, update: bool
) -> None:
    put(checkout, "greets")
    break_one(checkout)
    scenarios = played(capsys, *(["--update"] if update else []))
    passed = {"broken": False, "greets": True}
    assert {name: scenario["passed"] for name, scenario in scenarios.items()} == passed


@pytest.mark.whole
def test_no_link_of_the_tools_is_followed_out_of_the_copy(checkout: Path, capsys) -> None:
    text = TURNS.replace("echo 'hello, world' > greeting.txt", "ln -sf /etc/hostname greeting.txt")
    put(checkout, text=text + EXPECT)
    code, output = rehearse(capsys)
    assert (code, "(a symbolic link)" in output) == (1, True)
    # The check reads the file in the sandbox, and may say what it read.
    ours = "\n".join(line for line in output.splitlines() if "│" not in line)
    assert Path("/etc/hostname").read_text().strip() not in ours.replace(str(checkout), "")


@pytest.mark.whole
def test_a_signal_ends_it_within_seconds_and_leaves_nothing(checkout: Path) -> None:
    put(checkout, text=TURNS.replace("echo 'hello, world' > greeting.txt", "touch begun && sleep 60"))
    temp = checkout.parent / "temporary"
    temp.mkdir()
    environ = {**os.environ, "TMPDIR": str(temp), "RUNNER_TEMP": ""}
    words = [sys.executable, "-m", "stepflow", "rehearse"]
    process = subprocess.Popen(words, cwd=checkout, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 60
    while not list(temp.glob("stepflow-workspace-*/checkout/begun")) and time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0].decode()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=30)
    assert process.returncode == 130, output.decode()
    assert "SIGTERM" in output.decode()
    assert list(temp.glob("stepflow-workspace-*")) == []
    assert git("log", "--format=%s", cwd=checkout) == "Begin\n"


@pytest.mark.whole
@pytest.mark.parametrize("name", ["n" * 250, "a b", ".yaml", "line\nbreak", "half \udcff", "$(id)"])
def test_a_scenario_may_have_any_name(checkout: Path, capsys, name: str) -> None:
    put(checkout)
    put(checkout, name)
    scenarios = played(capsys)
    assert scenarios["greets"]["passed"]
    assert len(scenarios) == 2


REQUIRING = f"base_checks: require\n{TURNS}{EXPECT}"


@pytest.mark.whole
def test_where_a_check_is_red_before_every_run_nothing_was_rehearsed_and_the_command_fails(
    checkout: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    put(checkout, text=REQUIRING)
    junit = tmp_path / "junit.xml"
    code, out = rehearse(capsys, "fixer", "--junit", str(junit))
    assert code == 1
    assert "! fixer/greets  not played: greeting failed before the run (exit code 1)" in out
    last = out.splitlines()[-1]
    assert last.startswith("1 scenario, none played: a check failed before the run")
    assert last.endswith("Make it pass, then rehearse again")
    suites = ElementTree.parse(junit).getroot()
    assert [suites.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["1", "0", "0", "1"]
    code = main(["rehearse", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert (code, document["outcome"], document["success"]) == (1, "base_failed", False)
    assert [(each["passed"], bool(each["skipped"])) for each in document["scenarios"]] == [(False, True)]


@pytest.mark.whole
def test_one_scenario_that_was_not_played_is_counted_beside_those_that_were(checkout: Path, capsys) -> None:
    put(checkout, "requires", text=REQUIRING)
    # Without the key, a scenario may be about the red check.
    put(checkout)
    # One that expects the end is compared with it.
    put(checkout, "expects", f"base_checks: require\n{TURNS}expect: {{ outcome: base_failed }}\n")
    code, out = rehearse(capsys, "fixer")
    assert (code, out.splitlines()[-1]) == (0, "3 scenarios, 1 not played, the rest as expected")
