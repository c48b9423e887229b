"""A shipped agent in a repository without any: one workflow, one label, and the checks as an input."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from stepflow.cli import main
from stepflow.definition.loading import load_agent
from tests.checkout import git
from tests.servers.messages_api import Reply
from tests.world import COMMIT, TOKEN, World, answer, bash, label_event

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("checked_base")]

CHECK = "grep 'hello, world' greeting.txt"
BRANCH = "stepflow/fix/issue-7"


@pytest.fixture
def bare(world: World) -> World:
    """A repository without agents, whose workflow names the shipped one."""
    shutil.rmtree(world.checkout / ".agent")
    git("commit", "--quiet", "--all", "--message", "Without agents", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    world.runner.inputs |= {"agent": "builtin/fix", "checks": CHECK}
    return world


def fix(commands: list[str]) -> list[Reply]:
    """The shortest way of the shipped agent."""
    rounds = (
        (
            bash(command),
            answer("continuation.default", "handoff", changes="the greeting"),
            answer(
                "closure.default",
                "closing",
                missing="nothing",
                comment="Greeted.",
                pull_request={"title": "Greet the world", "body": "The world was left out."},
            ),
        )
        for command in commands
    )
    return [
        answer("initial.default", "next", cause="no world", plan="greet it"),
        *(reply for each in rounds for reply in each),
    ]


def start(world: World, replies: list[Reply], label: str = "agent:fix", **inputs: str):
    return world.run(replies, {**label_event(), "label": {"name": label}}, **inputs)


def test_the_label_starts_it_and_its_checks_are_those_of_the_workflow(bare: World) -> None:
    wrong = f"echo 'hi, world' > greeting.txt && {COMMIT}"
    right = f"echo 'hello, world' > greeting.txt && {COMMIT}"
    done = start(bare, fix([wrong, right]))
    assert (done.exit_code, done.outputs["outcome"], done.outputs["agent"]) == (0, "completed", "fix"), done.log
    (pull,) = bare.pulls()
    assert (pull["head"], pull["draft"]) == (BRANCH, True)
    assert len(bare.comments()) == 1
    ran = [event for event in bare.events(done) if event["event"] == "validator_ran"]
    assert [(each["name"], each["passed"]) for each in ran if each["name"] != "git-clean"] == [
        ("grep-hello-world", False),
        ("grep-hello-world", True),
    ]
    assert any("`grep 'hello, world' greeting.txt`" in json.dumps(body) for body in bare.model.bodies)


def test_an_agent_of_the_repository_wins_for_its_name(bare: World) -> None:
    init = ("--from", "builtin/minimal", "--check", "test -d .git", "--repo", str(bare.checkout))
    assert main(["init", "fix", *init]) == 0
    done = start(bare, [], checks="")
    assert bare.events(done)[0]["entry_step"] == "continuation.default"
    assert main(["init", "writer", *init]) == 0
    assert bare.events(start(bare, [], label="agent:writer"))[0]["agent"] == "writer"
    done = start(bare, [])
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert "The input checks is for shipped agents" in done.outputs["reason"]


def test_a_label_chooses_no_shipped_agent_that_the_workflow_does_not_name(bare: World) -> None:
    for label in ("agent:review", "agent:builtin/review", "agent:builtin/fix/../fix"):
        done = start(bare, [], label=label)
        assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition"), label
    done = start(bare, [], agent="builtin/fxi", checks="", label="agent:fxi")
    assert done.exit_code == 2
    assert "builtin/fix, " in done.outputs["reason"] or any("builtin/fix" in line for line in done.annotations)


def test_the_shipped_agents_load_with_checks() -> None:
    agent = load_agent("builtin/fix", checks=["make test", "make lint"])
    entry = agent.steps["closure.default"].validation
    assert entry is not None
    assert [each.validator.command for each in entry.conditions] == [
        "git status --porcelain",
        "make test",
        "make lint",
    ]
    assert (agent.name, agent.problems) == ("fix", ())


MAKEFILE = f"test:\n\t@{sys.executable} -m pytest -q -p no:cacheprovider test_greeting.py\n"
TEST = """
import warnings

def test_the_world_is_greeted():
    warnings.warn("careful")
    assert open("greeting.txt").read() == "hello, world\\n"
"""
ASSERTION = "AssertionError: assert 'hi\\n' == 'hello, world\\n'"
FAILED = "FAILED test_greeting.py::test_the_world_is_greeted - "


@pytest.fixture
def tested(world: World) -> World:
    """A repository whose tests are started by make, and the shipped agent."""
    shutil.rmtree(world.checkout / ".agent")
    (world.checkout / "Makefile").write_text(MAKEFILE)
    (world.checkout / "test_greeting.py").write_text(TEST)
    (world.checkout / ".gitignore").write_text("__pycache__/\n")
    git("add", "--all", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Tests", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    world.runner.inputs |= {"agent": "builtin/fix", "checks": "make test"}
    return world


def greet(*texts: str) -> list[Reply]:
    """The agent writes these texts, one in each round."""
    return fix([f"echo '{text}' > greeting.txt && {COMMIT}" for text in texts])


def shown(body: dict) -> str:
    """All that a request says, with its line breaks."""
    return json.dumps(body["messages"], ensure_ascii=False).replace("\\n", "\n").replace("\\\\", "\\")


def test_the_retry_prompt_has_what_pytest_said_before_what_make_said(tested: World) -> None:
    done = start(tested, greet("hi", "hello, world"))
    assert done.outputs["outcome"] == "completed", done.log
    (retry,) = [event["retry_prompt"] for event in tested.events(done) if event.get("retry_prompt")]
    assert ASSERTION in retry
    assert FAILED in retry
    assert retry.index(FAILED) < retry.index("make: *** [Makefile:2: test] Error 1")
    assert any(FAILED in shown(body) and "already failed" in shown(body) for body in tested.model.bodies[:2])


def test_the_comment_and_the_summary_of_a_red_end_show_what_failed(tested: World) -> None:
    done = start(tested, greet("hi", "hi there", "hi again"))
    assert done.outputs["outcome"] == "validation_failed", done.log
    (comment,) = tested.comments()
    for text in (comment, done.summary):
        assert FAILED in text
        assert "assert 'hi again\\n' == 'hello, world\\n'" in text


def test_no_part_of_a_secret_is_left_where_a_checks_output_is_cut(tested: World) -> None:
    """The line is too long to be shown whole, and wherever it is cut, it is cut within the secret."""
    half = len(TOKEN) // 2
    printed = f"print(('{TOKEN[:half]}' + '{TOKEN[half:]}') * 2000); raise SystemExit('it failed')"
    (tested.checkout / "Makefile").write_text(f'test:\n\t@{sys.executable} -c "{printed}"\n')
    git("commit", "--quiet", "--all", "--message", "Print it", cwd=tested.checkout)
    git("push", "--quiet", str(tested.served), "main", cwd=tested.checkout)
    done = start(tested, greet("hi", "ho", "hello, world"))
    assert done.outputs["outcome"] == "validation_failed", done.log
    written = (done.folder / "journal.jsonl").read_text()
    for text in (written, done.log.partition("Agent builtin/fix")[2], done.summary, *tested.comments()):
        assert not [part for part in (TOKEN[:half], TOKEN[-half:]) if part in text]
    assert "it failed" in written


@pytest.mark.fast
def test_a_problem_of_a_shipped_agent_is_shown_without_a_place_in_the_repository(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A place that is not there would be a broken link on the pull request, and in code scanning."""
    event = {"action": "opened", "pull_request": {"number": 3}, "repository": {"full_name": "o/r", "private": True}}
    done = world.runner.run(event, name="pull_request", mode="validate", agent="builtin/fix")
    assert any("title=SF612" in line for line in done.annotations), done.log
    assert not any("file=" in line or "line=" in line for line in done.annotations)
    monkeypatch.chdir(world.checkout)
    main(["validate", "builtin/fix", "--private", "--format", "sarif"])
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["results"] == []
    (invocation,) = run["invocations"]
    told = [each["associatedRule"]["id"] for each in invocation["toolConfigurationNotifications"]]
    assert "SF612" in told
