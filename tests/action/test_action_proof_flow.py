"""A run whose closing must be proven: a test that passes without the change sends the work back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.checkout import git
from tests.servers.messages_api import Reply
from tests.world import COMMIT, World, answer, bash, label_event

pytestmark = pytest.mark.whole
BUGGY = """\
def greet(name):
    return "hello, " + name


def part(name):
    return "bye, " + name
"""
TEST = """\
import unittest

import greeting


class Greeting(unittest.TestCase):
    def test_{name}(self):
        self.assertEqual(greeting.greet({given!r}), {expected!r})
"""
FIXED = BUGGY.replace('"hello, " + name', '"hello, " + (name or "world")')
WEAK = TEST.format(name="a_name", given="Ada", expected="hello, Ada")
STRONG = TEST.format(name="nobody", given="", expected="hello, world")
COMMAND = "python3 -m unittest {tests}"


@pytest.fixture
def greeting(world: World) -> World:
    """A repository with a bug and no test, whose workflow asks the shipped agent for a proof."""
    shutil.rmtree(world.checkout / ".agent")
    (world.checkout / "greeting.py").write_text(BUGGY)
    git("add", "--all", cwd=world.checkout)
    git("commit", "--quiet", "--message", "A bug", cwd=world.checkout)
    git("push", "--quiet", str(world.served), "main", cwd=world.checkout)
    world.runner.inputs |= {"agent": "builtin/fix", "prove": COMMAND}
    return world


def written(files: dict[str, str]) -> Reply:
    """A tool call that writes these files and commits them."""
    lines = [f"cat > {name} <<'END'\n{text}END" for name, text in files.items()]
    return bash("\n".join((*lines, "git add --all", COMMIT)))


def replies(*rounds: dict[str, str]) -> list[Reply]:
    closing = answer(
        "closure.default",
        "closing",
        missing="nothing",
        comment="Greeted.",
        pull_request={"title": "Greet the world", "body": "The world was left out."},
    )
    work = [
        (written(files), answer("continuation.default", "handoff", changes="the greeting"), closing) for files in rounds
    ]
    return [
        answer("initial.default", "next", cause="no world", plan="greet it"),
        *(reply for each in work for reply in each),
    ]


def start(world: World, answers: list[Reply], **inputs: str):
    return world.run(answers, {**label_event(), "label": {"name": "agent:fix"}}, **inputs)


def prompts(world: World) -> list[str]:
    return [json.dumps(body) for body in world.model.bodies]


def test_a_test_that_passes_without_the_change_sends_the_work_back(greeting: World) -> None:
    weak = {"greeting.py": FIXED, "test_greeting.py": WEAK}
    done = start(greeting, replies(weak, {"test_greeting.py": STRONG}))
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    ran = [event for event in greeting.events(done) if event["event"] == "validator_ran" and event["name"] == "proof"]
    assert [(each["passed"], each["proof"]["verdict"]) for each in ran] == [(False, "unproven"), (True, "proven")]
    (told,) = {
        each for each in prompts(greeting) if "The closing was refused" in each and each == prompts(greeting)[-3]
    }
    assert "The tests pass without the change too." in told
    assert "At least one of their tests must fail there" in told
    report = json.loads(Path(done.outputs["report"]).read_text())
    assert report["proof"]["verdict"] == "proven"
    assert [(each["file"], each["held_by"]) for each in report["proof"]["hunks"]] == [("greeting.py", ["test_nobody"])]
