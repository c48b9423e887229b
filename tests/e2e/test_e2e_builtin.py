"""The README's quick start: one workflow and one label in a repository that has no agent."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.docs.page import named_block
from tests.e2e.repository import labeled, lead_to
from tests.e2e.script import COMMIT, EVENT_CANARY, REPAIR
from tests.servers.messages_api import answers, calls

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
MAKEFILE = "test:\n\tpython3 -c 'import sizes; assert sizes.parse_size(\"12k\") == 12 * 1024'\n"


def answer(step: str, action: str, **more: object):
    """A step's structured answer."""
    return answers({"stepId": step, "next_action": {"action": action, "reason": "it is so"}, **more})


def test_a_label_runs_the_shipped_agent_with_the_checks_of_the_workflow(new_world: Callable[[], World]) -> None:
    world = new_world()
    shutil.rmtree(world.checkout / ".agent")
    (world.checkout / "Makefile").write_text(MAKEFILE)
    world.use_workflow(lead_to(named_block("quick start"), world.urls()))
    closing = {
        "missing": "nothing",
        "comment": "A size such as `12k` is a number of bytes now.",
        "pull_request": {"title": "Return sizes as numbers", "body": "`parse_size` gave text."},
    }
    script = [
        answer("initial.default", "next", cause="text times a number", plan="make it a number"),
        calls(("edit", REPAIR)),
        calls(("bash", {"command": COMMIT})),
        answer("continuation.default", "handoff", changes="parse_size gives a number"),
        answer("closure.default", "closing", **closing),
    ]
    job = world.run(script, labeled("agent:fix", secret=EVENT_CANARY))
    assert (job.exit_code, job.outputs["outcome"], job.outputs["agent"]) == (0, "completed", "fix"), job.everything
    assert job.outputs["branch"] == "stepflow/fix/issue-7"
    (pull,) = world.github.state.pulls
    assert (pull["title"], pull["draft"]) == ("Return sizes as numbers", True)
    (comment,) = world.github.state.comments
    assert "A size such as `12k`" in comment["body"]
    assert "make-test" in job.summary
    assert "red before this run" in job.summary
    assert world.github.violations == []
