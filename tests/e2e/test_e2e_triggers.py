"""Every workflow that the README shows, started in each of its ways: by a comment, by hand, by a pull request.

test_e2e_action.py has the start by a label, test_e2e_many.py the reusable workflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.page import RECIPES, named_block
from tests.e2e.repository import BRANCH, commented, dispatched, pull_request
from tests.e2e.script import EVENT_CANARY, answer_the_question, fix_shortly

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SCENARIO = """\
issue: { number: 7, title: parse_size ignores the unit, body: It gives text. }
turns:
  - output: { stepId: initial.question, next_action: { action: next, reason: clear } }
  - output: { stepId: continuation.question, answer: A k is 1024., next_action: { action: handoff, reason: answered } }
  - output:
      stepId: closure.question
      closure_action: close
      comment: A k is 1024.
      verdict: answered
      next_action: { action: closing, reason: answered }
expect:
  outcome: completed
  steps: [initial.question, continuation.question, closure.question]
"""


def test_a_comment_with_the_command_starts_the_agent_that_it_names(new_world: Callable[[], World]) -> None:
    world = new_world()
    text = "/stepflow run fixer\nplease"
    event = commented(text, secret=EVENT_CANARY)
    event["comment"]["id"] = world.github.state.add_comment(7, text, "bob")["id"]
    job = world.run(fix_shortly(), event, event_name="issue_comment")
    assert (job.exit_code, job.outputs["outcome"], job.outputs["agent"]) == (0, "completed", "fixer"), job.everything
    assert (job.outputs["issue"], job.outputs["branch"]) == ("7", BRANCH)
    assert world.only_read_before_the_first_turn(turns=len(fix_shortly()))
    assert world.github.violations == []


@pytest.mark.weekly  # the form's inputs are read in tests/action too
def test_a_start_by_hand_takes_agent_and_issue_from_its_form(new_world: Callable[[], World]) -> None:
    world = new_world()
    event = dispatched({"agent": "closer", "issue": "7"}, secret=EVENT_CANARY)
    job = world.run(answer_the_question(), event, event_name="workflow_dispatch")
    assert (job.exit_code, job.outputs["outcome"], job.outputs["agent"]) == (0, "completed", "closer"), job.everything
    assert (job.outputs["issue"], world.issue()["state"]) == ("7", "closed")
    assert "parse_size ignores the unit" in world.prompts()[0]
    assert world.only_read_before_the_first_turn(turns=len(answer_the_question()))
    assert world.github.violations == []


def test_a_pull_request_rehearses_the_agents_without_a_key_and_without_a_token(
    new_world: Callable[[], World],
) -> None:
    world = new_world()
    folder = world.checkout / ".agent" / "closer" / "scenarios"
    folder.mkdir()
    (folder / "answers.yaml").write_text(SCENARIO)
    world.use_workflow(named_block("rehearse workflow", RECIPES))
    job = world.run([], pull_request(secret=EVENT_CANARY), event_name="pull_request")
    wanted = (0, "completed", "true")
    assert (job.exit_code, job.outputs["outcome"], job.outputs["success"]) == wanted, job.everything
    assert "answers" in job.summary
    assert (world.model_bodies(), world.requests_made()) == ([], 0)
