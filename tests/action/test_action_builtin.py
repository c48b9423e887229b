"""A shipped agent in a repository without any: one workflow, one label, and the checks as an input."""

from __future__ import annotations

import json
import shutil

import pytest

from stepflow.cli import main
from stepflow.definition.loading import load_agent
from tests.checkout import git
from tests.servers.messages_api import Reply
from tests.world import COMMIT, World, answer, bash, label_event

pytestmark = pytest.mark.whole
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
    assert main(["init", "fix", "--from", "builtin/minimal", "--repo", str(bare.checkout)]) == 0
    done = start(bare, [], checks="")
    assert bare.events(done)[0]["entry_step"] == "continuation.default"
    assert main(["init", "writer", "--from", "builtin/minimal", "--repo", str(bare.checkout)]) == 0
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
