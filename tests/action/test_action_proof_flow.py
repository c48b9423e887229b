"""A run whose closing must be proven: a test that passes without the change sends the work back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.action.follow_up_world import check_out, follow_up, improve
from tests.action.review_world import labeled, propose, review
from tests.action.test_action_rehearse import NO_KEY, PULL
from tests.checkout import git
from tests.cli.test_cli_rehearse import EXPECT, TURNS, put
from tests.docs.page import DOCS, page_blocks
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
NO_COMMENTS = {"verdict": "comment", "comments": []}
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
    assert (done.exit_code, done.outputs["outcome"], done.outputs["proven"]) == (0, "completed", "true"), done.log
    ran = [event for event in greeting.events(done) if event["event"] == "validator_ran" and event["name"] == "proof"]
    assert [(each["passed"], each["proof"]["verdict"]) for each in ran] == [(False, "unproven"), (True, "proven")]
    (told,) = {
        each for each in prompts(greeting) if "The closing was refused" in each and each == prompts(greeting)[-3]
    }
    assert "The tests pass without the change too." in told
    assert "At least one of their tests must fail there" in told
    report = done.report
    assert report["proof"]["verdict"] == "proven"
    assert [(each["file"], each["held_by"]) for each in report["proof"]["hunks"]] == [("greeting.py", ["test_nobody"])]
    assert_shown(greeting, done)


def assert_shown(world: World, done) -> None:
    """Everything that people read has the proof."""
    (pull,) = world.pulls()
    page = (Path(done.outputs["report"]).parent / "report.html").read_text()
    for text in (pull["body"], *world.comments(), done.summary, page, done.log):
        assert "1 test fails without the change and passes with it." in text, text
        assert "1 of 1 change is held by a test." in text
    assert f"| [greeting.py:2]({done.outputs['pull-request-url']}/files#diff-" in done.summary
    # What the boundary defuses in a model's text is not in ours.
    assert "| `greeting.py:2` | ✅ `test_nobody` |" in pull["body"]


def test_a_change_without_a_test_and_a_part_that_no_test_holds_are_sent_back(greeting: World) -> None:
    more = FIXED.replace('"bye, "', '"goodbye, "')
    rounds = {"greeting.py": more}, {"test_greeting.py": STRONG}, {"greeting.py": FIXED}
    demand = f"command: {COMMAND}\nhunks: require"
    done = start(greeting, replies(*rounds), prove=demand)
    assert (done.exit_code, done.outputs["outcome"], done.outputs["proven"]) == (0, "completed", "true"), done.log
    sent_back = [each for each in prompts(greeting) if "The closing was refused" in each]
    assert "Add a test that fails without your change" in sent_back[0]
    assert "No test notices when greeting.py:6 is reverted." in sent_back[-1]
    assert "Test these parts as well, or leave out of the change what it does not need." in sent_back[-1]


def test_a_change_that_stays_unproven_ends_the_run_and_says_so(greeting: World) -> None:
    weak = {"greeting.py": FIXED, "test_greeting.py": WEAK}
    other = {"test_greeting.py": f"# Again.\n{WEAK}"}, {"test_greeting.py": f"# And again.\n{WEAK}"}
    done = start(greeting, replies(weak, *other), on_failure="comment")
    assert (done.exit_code, done.outputs["outcome"], done.outputs["proven"]) == (1, "validation_failed", "false")
    assert "The tests pass without the change too) in attempt 3 of 3" in done.outputs["reason"]
    (comment,) = greeting.comments()
    assert "❌ **Not proven.** The tests pass without the change too." in comment
    assert greeting.pulls() == []


def test_a_part_that_stays_unheld_is_not_proven_where_that_is_required(greeting: World) -> None:
    more = {"greeting.py": FIXED.replace('"bye, "', '"goodbye, "'), "test_greeting.py": STRONG}
    rounds = more, {"notes.txt": "Again.\n"}, {"notes.txt": "And again.\n"}
    done = start(greeting, replies(*rounds), prove=f"command: {COMMAND}\nhunks: require", on_failure="comment")
    assert (done.exit_code, done.outputs["outcome"], done.outputs["proven"]) == (1, "validation_failed", "false")
    (comment,) = greeting.comments()
    assert "❌ **Not every part is held.** 1 test fails without the change and passes with it." in comment


@pytest.mark.usefixtures("checked_base")
def test_a_command_that_cannot_run_is_told_before_the_first_token(greeting: World) -> None:
    done = start(greeting, [], prove="no-such-runner {tests}")
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert 'The check "proof" cannot run' in done.outputs["reason"]
    assert greeting.model.bodies == []


@pytest.mark.parametrize(
    ("agent", "label", "says"),
    [("builtin/review", "agent:review", "changes no file"), ("fixer", "agent:fixer", "is for shipped agents")],
)
def test_the_input_is_refused_where_it_has_no_meaning(world: World, agent: str, label: str, says: str) -> None:
    given = {**label_event(), "label": {"name": label}}
    done = world.run([], given, agent=agent, prove=COMMAND)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert says in done.outputs["reason"]


def demand_proof(registry: dict[str, Any]) -> None:
    """Add the validator of the page, for tests that are shell scripts."""
    (block,) = (each for each in page_blocks(DOCS / "how-to/prove.md") if each.name == "validator")
    (name, validator), *_ = json.loads(f"{{{block.text}}}").items()
    registry["validators"][name] = {**validator, "command": "sh {tests}", "failurePattern": "git-dirty"}
    registry["validationSteps"]["closure.issue"]["validationConditions"].append({"validator": "proof"})


def test_a_scenario_expects_a_proof(world: World) -> None:
    world.edit("steps_registry.json", demand_proof)
    with_test = TURNS.replace(
        "git commit -qam", "mkdir t && echo 'grep world greeting.txt' > t/x.test.sh && git add t && git commit -qam"
    )
    put(world.checkout, text=with_test + EXPECT.replace("greeting: [pass]", "greeting: [pass], proof: [pass]"))
    done = world.runner.run(PULL, name="pull_request", mode="rehearse", **NO_KEY)
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log


@pytest.mark.fast
def test_the_change_of_a_follow_up_is_all_of_its_pull_request(opened: World) -> None:
    opened.edit("steps_registry.json", demand_proof)
    check_out(opened)
    test = "mkdir t && echo 'grep world greeting.txt' > t/x.test.sh && git add t && " + COMMIT
    done = follow_up(opened, [bash(test), *improve()[1:]])
    assert (done.exit_code, done.outputs["outcome"], done.outputs["proven"]) == (0, "completed", "true"), done.log
    report = done.report
    assert [each["file"] for each in report["proof"]["hunks"]] == ["greeting.txt"]


@pytest.mark.parametrize(
    ("test", "verdict", "says"),
    [
        (STRONG, "proven", "1 test fails without the change and passes with it."),
        (WEAK, "unproven", "The tests pass without the change too."),
    ],
)
def test_a_review_carries_the_proof_of_the_pull_request_and_demands_none(
    greeting: World, test: str, verdict: str, says: str
) -> None:
    greeting.runner.inputs |= {"agent": "builtin/review"}
    number = propose(greeting, {"greeting.py": FIXED, "test_greeting.py": test})
    reads = [
        answer("initial.default", "next", question="Is it right?", places="greeting.py"),
        answer("continuation.default", "handoff", findings="None."),
        answer("closure.default", "closing", missing="nothing", comment="", review={"summary": "Well.", **NO_COMMENTS}),
    ]
    done = review(greeting, labeled(greeting, number, label="agent:review"), reads)
    assert done.outputs["outcome"] == "completed", done.log
    report = done.report
    assert report["proof"]["verdict"] == verdict
    (written_review,) = greeting.github.state.reviews
    assert says in written_review["body"]
    assert says in done.summary
