"""What asked for a run and was taken back before its job began starts nothing: a label, a comment, an assignment."""

from __future__ import annotations

from typing import Any

import pytest

from tests.action.follow_up_world import commented, follow_up, improve
from tests.action.review_world import labeled, let_review, propose, review
from tests.checkout import Invocation
from tests.world import World, label_event, solve

pytestmark = pytest.mark.whole
LABEL = "agent:fixer"
BOB = {"login": "bob", "type": "User"}
JOB, APP = "github-actions[bot]", "label-cleaner[bot]"


def take_off(world: World, by: str = "bob", number: int = 7) -> None:
    world.github.state.issues[number]["labels"].remove(LABEL)
    if by:
        world.github.state.add_event(number, "unlabeled", by, label=LABEL)


def put_on(world: World, number: int = 7) -> None:
    world.github.state.issues[number]["labels"].append(LABEL)
    world.github.state.add_event(number, "labeled", "bob", label=LABEL)


def assert_nothing_was_paid(world: World, done: Invocation, told: str, paid: int = 0) -> None:
    """The job ends well, and says in one sentence why there was no run; the issue says nothing."""
    assert (done.outputs["outcome"], done.exit_code) == ("skipped", 0), done.log
    assert told in done.outputs["reason"]
    assert len(world.model.bodies) == paid
    assert world.github.writes() == []


@pytest.mark.parametrize("by", ["bob", "carol", ""], ids=["the same person", "another", "nobody knows who"])
def test_a_label_that_was_taken_off_starts_nothing(world: World, by: str) -> None:
    world.github.state.add_event(7, "labeled", "bob", label=LABEL)
    take_off(world, by)
    done = world.run(solve())
    assert_nothing_was_paid(world, done, f"{by or 'somebody'} has taken the label `{LABEL}` off #7")
    assert "Put the label on again" in done.log


def test_a_label_that_was_taken_off_a_pull_request_starts_no_review(world: World) -> None:
    let_review(world)
    number = propose(world, {"greeting.txt": "Hello there\n"})
    event = labeled(world, number)
    event["pull_request"]["labels"] = [{"name": "agent:fixer"}]
    take_off(world, number=number)
    done = review(world, event)
    assert_nothing_was_paid(world, done, f"bob has taken the label `{LABEL}` off #{number}")


def test_a_label_that_was_put_on_again_starts_a_run(world: World) -> None:
    take_off(world)
    put_on(world)
    assert world.run(solve()).outputs["outcome"] == "completed"


@pytest.mark.parametrize("by", [JOB, APP])
def test_a_label_that_a_workflow_takes_off_first_starts_a_run(world: World, by: str) -> None:
    """Somebody's workflow does so in the step before, so that the label can be put on again."""
    take_off(world, by)
    assert world.run(solve()).outputs["outcome"] == "completed"


def test_a_job_that_is_run_again_after_its_run_took_the_label_off_is_a_new_run(world: World) -> None:
    assert world.run(solve()).outputs["outcome"] == "completed"
    assert LABEL not in world.labels()
    world.check_out_again()
    done = world.run(solve())
    assert done.outputs["outcome"] == "completed", done.log
    # A person who puts it on and takes it off again has changed their mind.
    put_on(world)
    take_off(world)
    before = len(world.model.bodies)
    done = world.run(solve())
    assert (done.outputs["outcome"], len(world.model.bodies)) == ("skipped", before), done.log


def test_a_run_that_is_resumed_goes_on_without_its_label(world: World) -> None:
    folder = str(world.runner.folder / "mine")
    assert world.run(solve()[:2], run_folder=folder, on_failure="nothing").outputs["outcome"] == "model_failed"
    take_off(world)
    assert world.run(solve()[2:], run_folder=folder).outputs["outcome"] == "completed"


def comment_event(world: World, **facts: Any) -> dict[str, Any]:
    """The event of bob's command on the issue, which is there."""
    comment = world.github.state.add_comment(7, "/stepflow run fixer", "bob")
    said = {"id": comment["id"], "body": comment["body"], "user": BOB, "author_association": "MEMBER"}
    return {**label_event(), "action": "created", "comment": said, "sender": BOB, **facts}


@pytest.mark.parametrize(
    ("now", "told"),
    [
        (None, "the comment that asked for it has been deleted"),
        ("Never mind.", "the comment that asked for it was edited and no longer starts fixer"),
        ("/stepflow run fixer\n\nAnd be quick.", ""),
    ],
    ids=["deleted", "rewritten", "still a command"],
)
def test_a_command_that_was_taken_back_starts_nothing(world: World, now: str | None, told: str) -> None:
    event = comment_event(world)
    if now is None:
        world.github.state.comments.clear()
    else:
        world.github.state.comments[-1]["body"] = now
    world.play(solve())
    done = world.runner.run(event, name="issue_comment")
    if told:
        assert_nothing_was_paid(world, done, told)
    else:
        assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.parametrize(
    ("now", "starts"),
    [(None, False), ("Never mind.", False), ("/stepflow run", True)],
    ids=["deleted", "edited", "there"],
)
def test_a_command_on_a_pull_request_that_was_taken_back_starts_nothing(
    opened: World, now: str | None, starts: bool
) -> None:
    state, event = opened.github.state, commented("/stepflow run\n\nShout.")
    comment = state.add_comment(event["issue"]["number"], "/stepflow run\n\nShout.", "bob")
    event["comment"]["id"] = comment["id"]
    if now is None:
        state.comments.remove(comment)
    else:
        comment["body"] = now
    opened.model.requests.clear()
    done = follow_up(opened, improve(), event, name="issue_comment")
    assert (done.outputs["outcome"], bool(opened.model.requests)) == (
        ("completed", True) if starts else ("skipped", False)
    ), done.log


@pytest.mark.parametrize(("undone", "outcome"), [(True, "skipped"), (False, "completed")])
def test_an_assignment_that_was_taken_back_starts_nothing(world: World, undone: bool, outcome: str) -> None:
    state = world.github.state
    state.add_event(7, "assigned", "bob", assignee="helper")
    if undone:
        state.add_event(7, "unassigned", "bob", assignee="helper")
    event = {**label_event(), "action": "assigned", "assignee": {"login": "helper", "type": "User"}}
    inputs = {"agent": "fixer", "start": {"events": "issues.assigned", "mention": "helper"}}
    done = world.run(solve(), event, **inputs)
    assert done.outputs["outcome"] == outcome, done.log
    assert ("bob has taken the assignment of helper to #7 back" in done.outputs["reason"]) == undone
