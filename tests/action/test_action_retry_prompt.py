"""What the model is shown of a red check is what failed, whatever the tools write to which stream."""

from __future__ import annotations

import json
import shutil
import sys

import pytest

from tests.checkout import git
from tests.servers.messages_api import Reply
from tests.world import COMMIT, TOKEN, World, answer, bash, label_event

pytestmark = pytest.mark.whole

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


def fix(*texts: str) -> list[Reply]:
    replies = [answer("initial.default", "next", cause="no world", plan="greet it")]
    for text in texts:
        replies += [
            bash(f"echo '{text}' > greeting.txt && {COMMIT}"),
            answer("continuation.default", "handoff", changes="the greeting"),
            answer(
                "closure.default",
                "closing",
                missing="nothing",
                comment="Greeted.",
                pull_request={"title": "Greet the world", "body": "The world was left out."},
            ),
        ]
    return replies


def start(world: World, replies: list[Reply]):
    return world.run(replies, {**label_event(), "label": {"name": "agent:fix"}})


def shown(body: dict) -> str:
    """All that a request says, with its line breaks."""
    return json.dumps(body["messages"], ensure_ascii=False).replace("\\n", "\n").replace("\\\\", "\\")


def test_the_retry_prompt_has_what_pytest_said_before_what_make_said(tested: World) -> None:
    done = start(tested, fix("hi", "hello, world"))
    assert done.outputs["outcome"] == "completed", done.log
    (retry,) = [event["retry_prompt"] for event in tested.events(done) if event.get("retry_prompt")]
    assert ASSERTION in retry
    assert FAILED in retry
    assert retry.index(FAILED) < retry.index("make: *** [Makefile:2: test] Error 1")
    assert any(FAILED in shown(body) and "already failed" in shown(body) for body in tested.model.bodies[:2])


def test_the_comment_and_the_summary_of_a_red_end_show_what_failed(tested: World) -> None:
    done = start(tested, fix("hi", "hi there", "hi again"))
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
    done = start(tested, fix("hi", "ho", "hello, world"))
    assert done.outputs["outcome"] == "validation_failed", done.log
    written = (done.folder / "journal.jsonl").read_text()
    for text in (written, done.log.partition("Agent builtin/fix")[2], done.summary, *tested.comments()):
        assert not [part for part in (TOKEN[:half], TOKEN[-half:]) if part in text]
    assert "it failed" in written
