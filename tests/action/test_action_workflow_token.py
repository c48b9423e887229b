"""`github-token` is the boundary's: a run that does not complete sends nothing with it, unless the workflow's author
asked for a comment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.docs.page import around_action, named_block
from tests.servers.messages_api import Failure, Reply
from tests.world import READ_TOKEN, TOKEN, World, bash, label_event, solve, understood

pytestmark = pytest.mark.usefixtures("unchecked_base")


@pytest.fixture
def default(world: World) -> World:
    """A world whose two tokens differ, with the default of every other input about GitHub."""
    world.github.read_token = world.git_server.read_token = READ_TOKEN
    world.runner.inputs["read-token"] = READ_TOKEN
    del world.runner.inputs["on-failure"]
    return world


def broken(world: World) -> None:
    world.edit("steps_registry.json", lambda registry: registry.update(entryStep="initial.isue"))


def forbidden(world: World) -> None:
    world.github.state.permissions["bob"] = "read"


def locked(world: World) -> None:
    world.github.state.locked.add(7)


def nothing(_: World) -> None:
    pass


FAILED = [understood(), Failure(status=400, message="no")]
REPLY = {"body": "/stepflow approve 0123456789abcdef0123", "user": {"login": "bob"}, "author_association": "OWNER"}
ANSWERED = {**label_event(), "action": "created", "comment": REPLY}
WAYS: list[tuple[str, Callable[[World], None], list[Reply], dict[str, str], dict[str, Any] | None]] = [
    ("model_failed", nothing, FAILED, {}, None),
    ("limit_reached", nothing, [understood()], {"max-iterations": "1"}, None),
    ("misconfigured", nothing, [], {"anthropic-api-key": ""}, None),
    ("invalid_definition", broken, [], {}, None),
    ("refused", forbidden, solve(), {}, None),
    ("misconfigured", locked, solve(), {}, label_event(locked=True)),
    ("refused", nothing, [], {}, ANSWERED),
]


@pytest.mark.whole
@pytest.mark.parametrize(("outcome", "happens", "replies", "inputs", "event"), WAYS)
def test_a_failed_run_with_the_defaults_sends_no_request_with_the_token_that_writes(
    default: World,
    outcome: str,
    happens: Callable[[World], None],
    replies: list[Reply],
    inputs: dict[str, str],
    event: dict[str, Any] | None,
) -> None:
    happens(default)
    default.play(replies)
    name = "issue_comment" if event and "comment" in event else "issues"
    done = default.runner.run(event or label_event(), name=name, **inputs)
    assert (done.outputs["outcome"], done.outputs["success"]) == (outcome, "false"), done.log
    assert {each.credential for each in default.github.requests} <= {"read"}
    assert all(each.read_only or not each.credential for each in default.git_server.requests)
    assert default.wrote_nothing()


@pytest.mark.whole
@pytest.mark.parametrize("fails", [True, False])
def test_with_the_quick_start_a_run_leaves_exactly_one_comment(world: World, fails: bool) -> None:
    (step,) = yaml.safe_load(around_action(named_block("quick start"))[1])
    del world.runner.inputs["on-failure"], world.runner.inputs["read-token"]
    about_github = ("github-token", "read-token", "on-failure")
    inputs = {name: step["with"][name].replace("${{ github.token }}", TOKEN) for name in about_github}
    done = world.run(FAILED if fails else solve(), **inputs)
    assert done.outputs["outcome"] == ("model_failed" if fails else "completed"), done.log
    (comment,) = world.comments()
    assert ("the model gave no answer" in comment) is fails


@pytest.mark.whole
def test_work_that_is_kept_on_request_needs_the_token_that_writes(default: World) -> None:
    done = default.run([understood(), bash("true"), *FAILED[1:]], on_failure="comment")
    assert done.outputs["outcome"] == "model_failed", done.log
    assert {each.credential for each in default.github.requests if each.method != "GET"} >= {"write"}
