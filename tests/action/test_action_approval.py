"""A run that waits for approval: what it shows, who may let it go on, and what an approval is bound to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.checkout import Invocation, git
from tests.world import ISSUE, World, answer, label_event, solve, understood

pytestmark = pytest.mark.whole


@pytest.fixture
def folder(world: World) -> Path:
    """The run folder that every job of these tests is given."""
    return world.runner.folder / "mine"


@pytest.fixture
def planned(world: World, folder: Path) -> Invocation:
    """The job that made a plan, and waits."""
    approval = {"by": "maintain"}
    world.edit("steps_registry.json", lambda it: it["steps"]["continuation.issue"].update(approval=approval))
    world.github.state.permissions["carol"] = "maintain"
    done = world.run([understood()], run_folder=str(folder))
    assert (done.exit_code, done.outputs["outcome"]) == (0, "awaiting_approval"), done.log
    return done


def digest_in(world: World) -> str:
    (comment,) = world.comments()
    (digest,) = re.findall(r"approves ([0-9a-f]{20})", comment)
    return digest


def say(
    world: World,
    folder: Path,
    words: str,
    replies: Any = (),
    *,
    by: str = "carol",
    role: str = "MEMBER",
    inputs: dict[str, str] | None = None,
    **issue: Any,
) -> Invocation:
    """Somebody comments on the issue."""
    user = {"login": by, "type": "User"}
    comment = {"body": words, "user": user, "author_association": role}
    event = {**label_event(**issue), "action": "created", "comment": comment, "sender": user}
    world.play(replies)
    return world.runner.run(event, name="issue_comment", run_folder=str(folder), **(inputs or {}))


def test_the_comment_shows_plan_limits_and_digest(world: World, planned: Invocation) -> None:
    (comment,) = world.comments()
    assert "the greeting leaves the world out" in comment
    assert "**Left to spend:** 8 iterations · $4.99" in comment
    assert f"`/stepflow approve {digest_in(world)}`" in comment
    assert world.wrote_nothing(but_comments=1)
    assert planned.outputs["success"] == "false"
    assert planned.annotations[0].startswith("::notice ")
    assert digest_in(world) in planned.summary
    report = planned.report
    assert (report["approval"]["by"], report["approval"]["iterations_left"]) == ("maintain", 8)


def test_a_plan_for_the_input_issue_text_is_approved_whatever_the_issue_says(world: World, folder: Path) -> None:
    world.edit("steps_registry.json", lambda it: it["steps"]["continuation.issue"].update(approval={"by": "maintain"}))
    world.github.state.permissions["carol"] = "maintain"
    world.play([understood()])
    given = {"inputs": {}, "repository": {"full_name": "o/r", "default_branch": "main"}}
    inputs = {"agent": "fixer", "issue": "7", "issue_text": "Greet the world", "run_folder": str(folder)}
    planned = world.runner.run(given, name="workflow_dispatch", **inputs)
    assert planned.outputs["outcome"] == "awaiting_approval", planned.log
    done = say(world, folder, f"/stepflow approve {digest_in(world)}", solve()[1:])
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log


def test_the_right_digest_goes_on_and_nothing_is_asked_twice(world: World, planned: Invocation, folder: Path) -> None:
    done = say(world, folder, f"/stepflow approve {digest_in(world)}", solve()[1:])
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert len(world.model.bodies) == len(solve())
    assert (done.outputs["agent"], len(world.pulls()), len(world.comments())) == ("fixer", 1, 1)
    assert [event["actor"] for event in world.events(done) if event["event"] == "approval_answered"] == ["carol"]


def test_a_transition_may_ask_as_well(world: World, folder: Path) -> None:
    rule = {"approval": {"by": "write"}}
    world.edit("steps_registry.json", lambda it: it["steps"]["initial.issue"]["transitions"]["next"].update(rule))
    assert world.run([understood()], run_folder=str(folder)).outputs["outcome"] == "awaiting_approval"
    done = say(world, folder, f"/stepflow approve {digest_in(world)}", solve()[1:], by="bob")
    assert (done.outputs["outcome"], len(world.model.bodies)) == ("completed", len(solve())), done.log


def test_without_an_answer_the_run_waits_on(world: World, planned: Invocation, folder: Path) -> None:
    before = digest_in(world)
    done = world.run([], run_folder=str(folder))
    assert done.outputs["outcome"] == "awaiting_approval", done.log
    assert (digest_in(world), len(world.model.bodies)) == (before, 1)


def test_after_the_issue_was_edited_the_agent_makes_a_new_plan(world: World, planned: Invocation, folder: Path) -> None:
    before = digest_in(world)
    edited = label_event(body=f"{ISSUE['body']} And more.")
    done = world.run([understood()], edited, run_folder=str(folder))
    assert done.outputs["outcome"] == "awaiting_approval", done.log
    assert "the issue has been edited since the plan was made" in done.log
    assert (digest_in(world) != before, len(world.model.bodies)) == (True, 2)


def move_base(world: World) -> None:
    (world.checkout / "other.txt").write_text("new")
    git("add", "--all", cwd=world.checkout)
    git("commit", "--quiet", "--message", "Move on", cwd=world.checkout)


def change_definition(world: World) -> None:
    """In the working tree alone: the base stays where it is."""
    path = world.checkout / ".agent" / "fixer" / "agent.json"
    path.write_text(path.read_text().replace('"description": "', '"description": "Now '))


def nothing(_: World) -> None:
    """What is asked for is what was planned."""


@pytest.mark.parametrize(
    ("change", "who", "issue", "digest", "why"),
    [
        (nothing, "carol", {}, "0" * 20, "is not the digest of the plan"),
        (nothing, "carol", {}, " ", "the reply does not name the digest of the plan"),
        (nothing, "bob", {}, "", "`approval` requires 'maintain'"),
        (nothing, "dave", {}, "", "has the permission 'read'"),
        (nothing, "carol", {"body": f"{ISSUE['body']} And more."}, "", "the issue has been edited"),
        (move_base, "carol", {}, "", "another commit than the one checked out"),
        (change_definition, "carol", {}, "", "another version of the agent"),
        (nothing, "carol", {"number": 8}, "", "it is not about issue #8"),
    ],
    ids=[
        *("wrong digest", "no digest", "writer", "reader"),
        *("edited issue", "moved base", "changed definition", "another issue"),
    ],
)
def test_an_approval_of_something_else_is_refused_before_a_token_is_spent(
    world: World,
    planned: Invocation,
    folder: Path,
    change: Callable[[World], None],
    who: str,
    issue: dict[str, str],
    digest: str,
    why: str,
) -> None:
    world.github.state.permissions["dave"] = "read"
    right, asked = digest_in(world), len(world.model.bodies)
    change(world)
    done = say(world, folder, f"/stepflow approve {digest or right}".strip(), solve()[1:], by=who, **issue)
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused"), done.log
    assert why in done.outputs["reason"]
    assert (len(world.model.bodies), asked) == (1, 1)
    (comment,) = world.comments()
    assert f"approves {right}" in comment, "the plan is still there to be approved"


def test_without_a_read_token_nobody_is_believed_to_be_more_than_a_writer(
    world: World, planned: Invocation, folder: Path
) -> None:
    no_token = {"read-token": ""}
    done = say(world, folder, f"/stepflow approve {digest_in(world)}", role="OWNER", inputs=no_token)
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused"), done.log
    assert "no read-token to ask whether carol, who triggered the run, has the permission 'maintain'" in done.log
    assert len(world.model.bodies) == 1


def test_a_rejection_ends_the_run_for_good(world: World, planned: Invocation, folder: Path) -> None:
    right = digest_in(world)
    done = say(world, folder, "/stepflow reject too large a change")
    assert done.outputs["outcome"] == "refused", done.log
    assert 'carol rejected the plan before step "continuation.issue": too large a change' in done.outputs["reason"]
    assert "too large a change" in world.comments()[0]
    again = say(world, folder, f"/stepflow approve {right}")
    assert "it is over: refused" in again.outputs["reason"]
    assert len(world.model.bodies) == 1


def test_a_folder_that_is_gone_is_said_with_what_to_do(world: World, planned: Invocation, folder: Path) -> None:
    done = say(world, folder.with_name("other"), f"/stepflow approve {digest_in(world)}")
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert "the folder of the run that waits for approval is gone" in done.outputs["reason"]
    assert "run-folder" in done.outputs["reason"]
    assert len(world.model.bodies) == 1
    (comment,) = world.comments()
    plan, _, told = comment.partition("\n---\n")
    assert "/stepflow approve" in plan
    assert "### ❌ fixer on issue #7: refused" in told
    assert "Let the workflow bring it back" in told
    assert say(world, folder, f"/stepflow approve {digest_in(world)}", solve()[1:]).outputs["outcome"] == "completed"


def test_a_second_approval_does_nothing(world: World, planned: Invocation, folder: Path) -> None:
    approve = f"/stepflow approve {digest_in(world)}"
    say(world, folder, approve, solve()[1:])
    before = (world.comments(), world.pulls(), world.events(planned))
    done = say(world, folder, approve)
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused")
    assert "it is over: completed" in done.outputs["reason"]
    assert (world.comments(), world.pulls(), world.events(planned)) == before
    assert len(world.model.bodies) == len(solve())


def plan(world: World, folder: Path, understanding: object) -> Invocation:
    """The first job of an agent that hands this on to a step that asks for approval."""
    steps = {"continuation.issue": {"approval": {"by": "write"}}}
    world.edit("steps_registry.json", lambda it: [it["steps"][name].update(change) for name, change in steps.items()])
    first = answer("initial.issue", "next", understanding=understanding)
    return world.run([first], run_folder=str(folder))


HIDDEN = "\u200b\u202e\u2066\U000e0049\u200d\x1b[8m"


def test_what_nobody_sees_in_a_plan_reaches_no_step(world: World, folder: Path) -> None:
    """Joiners stay where people see what they do."""
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    done = plan(world, folder, f"Greet{HIDDEN} the {family} w{HIDDEN}orld.{HIDDEN}")
    assert done.outputs["outcome"] == "awaiting_approval", done.log
    shown = f"Greet the {family} world."
    (comment,) = world.comments()
    assert shown.replace("\u200d", "") in comment.replace("\u200d", "")
    assert shown in done.summary
    report = json.loads((folder / "report.json").read_text())
    assert report["handoff"]["initial.issue"]["understanding"] == shown
    done = say(world, folder, f"/stepflow approve {digest_in(world)}", solve()[1:], by="bob")
    assert done.outputs["outcome"] == "completed", done.log
    prompts = json.dumps(world.model.bodies[1]["messages"][0], ensure_ascii=False)
    assert shown in prompts
    assert [each for each in HIDDEN if each in prompts.replace(family, "") and not each.isascii()] == []


@pytest.mark.parametrize(
    ("understanding", "is_shown"),
    [
        ("x" * 19_000, True),
        ("x" * 21_000, False),
        ("x\n" * 1_900, True),
        ("x\n" * 2_100, False),
        ("first\n\n\n\n   last\n", True),
    ],
)
def test_a_plan_is_shown_whole_or_not_approved(world: World, folder: Path, understanding: str, is_shown: bool) -> None:
    done = plan(world, folder, understanding)
    (comment,) = world.comments()
    if is_shown:
        assert done.outputs["outcome"] == "awaiting_approval", done.log
        assert f"understanding:\n{understanding}" in comment
        return
    assert done.outputs["outcome"] == "refused", done.log
    assert 'the plan before step "continuation.issue" is too long to approve' in done.outputs["reason"]
    assert "/stepflow approve" not in comment
    assert len(world.model.bodies) == 1


def test_a_reason_to_reject_is_told_without_what_nobody_sees(world: World, planned: Invocation, folder: Path) -> None:
    done = say(world, folder, f"/stepflow reject too{HIDDEN[:5]} large")
    assert done.outputs["reason"].endswith('before step "continuation.issue": too large'), done.log
