"""Whoever keeps their membership of an organization private is a contributor or nobody in GitHub's events. Where a
token can ask, what GitHub says of their permission decides."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.action.follow_up_world import commented as commented_there
from tests.action.follow_up_world import follow_up, improve, reviewed
from tests.action.test_action_read_token import asked_by_bob
from tests.checkout import Invocation
from tests.world import BRANCH, World, label_event, solve, understood

pytestmark = [pytest.mark.whole, pytest.mark.usefixtures("unchecked_base")]

#: How a private member is called, and by which event.
UNKNOWN = [("own label", "CONTRIBUTOR"), ("comment", "NONE"), ("comment", "FIRST_TIME_CONTRIBUTOR")]


def permission_requests(world: World) -> list[str]:
    return [each.path for each in world.github.requests if each.path.endswith("/permission")]


@pytest.mark.parametrize(("trigger", "association"), UNKNOWN)
def test_a_private_member_with_write_access_starts_a_run(world: World, trigger: str, association: str) -> None:
    name, event = asked_by_bob(trigger, association)
    world.play(solve())
    done = world.runner.run(event, name=name)
    assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.parametrize(
    ("trigger", "given"), [("own label", {}), ("comment", {"github-token": "", "boundary": "dry-run"})]
)
def test_a_stranger_is_skipped_and_costs_one_question(world: World, trigger: str, given: dict[str, str]) -> None:
    world.github.state.permissions["bob"] = "read"
    name, event = asked_by_bob(trigger, "NONE")
    done = world.runner.run(event, name=name, **given)
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped"), done.log
    assert "bob (NONE) may not" in done.outputs["reason"]
    assert "permission 'read'" in done.outputs["reason"]
    assert [each.path for each in world.github.requests] == permission_requests(world)
    assert len(world.github.requests) == 1
    assert (world.model.bodies, world.git_server.requests) == ([], [])
    assert world.wrote_nothing()


@pytest.mark.parametrize(("trigger", "association"), UNKNOWN)
def test_without_a_token_to_ask_with_the_event_decides(world: World, trigger: str, association: str) -> None:
    name, event = asked_by_bob(trigger, association)
    done = world.runner.run(event, name=name, **{"read-token": ""})
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped"), done.log
    assert world.github.requests == []


@pytest.mark.parametrize("minimum", ["triage", "maintain"])
def test_min_permission_counts_for_private_members_too(world: World, minimum: str) -> None:
    world.github.state.permissions["bob"] = "triage"
    name, event = asked_by_bob("comment", "NONE")
    world.play(solve())
    done = world.runner.run(event, name=name, min_permission=minimum)
    assert done.outputs["outcome"] == ("completed" if minimum == "triage" else "skipped"), done.log


def test_a_bot_that_comments_is_judged_by_the_event_alone(world: World) -> None:
    name, event = asked_by_bob("comment", "NONE")
    event["sender"] = {"login": "helper[bot]", "type": "Bot"}
    done = world.runner.run(event, name=name, allow_bots="helper")
    assert (done.outputs["outcome"], world.github.requests) == ("skipped", []), done.log


def reviews(world: World) -> tuple[dict[str, Any], str]:
    return reviewed(association="NONE"), "pull_request_review"


def commands(world: World) -> tuple[dict[str, Any], str]:
    given = commented_there("/stepflow run")
    given["comment"]["author_association"] = "CONTRIBUTOR"
    return given, "issue_comment"


def test_a_private_members_command_is_followed_up(opened: World) -> None:
    given, name = commands(opened)
    before = opened.branches()[BRANCH]
    done = follow_up(opened, improve(), given, name=name)
    assert done.outputs["outcome"] == "completed", done.log
    assert opened.branches()[BRANCH] != before


@pytest.mark.parametrize("happens", [reviews, commands])
def test_a_strangers_review_or_command_costs_one_question(opened: World, happens: Any) -> None:
    given, name = happens(opened)
    opened.github.state.permissions["bob"] = "read"
    opened.github.requests.clear()
    opened.model.requests.clear()
    done = follow_up(opened, [], given, name=name)
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped"), done.log
    assert len(opened.github.requests) == len(permission_requests(opened)) == 1
    assert opened.model.requests == []


def plan_and_say(world: World, tmp_path: Path, by: str, permission: str, words: str = "approve") -> Invocation:
    """A plan waits, and somebody whom the event does not know answers it."""

    def ask(registry: dict[str, Any]) -> None:
        registry["steps"]["continuation.issue"]["approval"] = {"by": "write"}

    world.edit("steps_registry.json", ask)
    folder = tmp_path / "kept"
    waiting = world.run([understood()], run_folder=str(folder))
    assert waiting.outputs["outcome"] == "awaiting_approval", waiting.log
    (digest,) = re.findall(r"approves ([0-9a-f]{20})", world.comments()[0])
    world.github.state.permissions[by] = permission
    user = {"login": by, "type": "User"}
    said = f"/stepflow approve {digest}" if words == "approve" else "/stepflow reject too large"
    comment = {"body": said, "user": user, "author_association": "CONTRIBUTOR"}
    world.github.requests.clear()
    world.play(solve()[1:])
    event = {**label_event(), "action": "created", "comment": comment, "sender": user}
    return world.runner.run(event, name="issue_comment", run_folder=str(folder))


def test_a_private_member_approves_a_plan(world: World, tmp_path: Path) -> None:
    done = plan_and_say(world, tmp_path, "carol", "write")
    assert done.outputs["outcome"] == "completed", done.log


@pytest.mark.parametrize("words", ["approve", "reject"])
def test_a_stranger_neither_approves_nor_rejects_a_plan(world: World, tmp_path: Path, words: str) -> None:
    done = plan_and_say(world, tmp_path, "eve", "read", words)
    assert (done.exit_code, done.outputs["outcome"]) == (0, "skipped"), done.log
    assert len(world.github.requests) == 1
    assert world.wrote_nothing(but_comments=1)
