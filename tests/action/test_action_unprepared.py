"""What tells people that a run could not begin, and which token that takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from tests.docs.page import around_action, named_block
from tests.servers.messages_api import Failure, Reply
from tests.world import READ_TOKEN, TOKEN, World, bash, label_event, solve, understood


def test_a_missing_key_is_told_on_the_issue_once(world: World) -> None:
    for _ in range(2):
        done = world.run([], anthropic_api_key="")
        assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured")
    assert world.wrote_nothing(but_comments=1)
    (comment,) = world.comments()
    assert "### ❌ fixer on issue #7: a setting is missing or wrong" in comment
    assert "There is no API key" in comment
    assert "anthropic-api-key: ${{ secrets.ANTHROPIC_API_KEY }}" in done.outputs["reason"]


def test_a_broken_definition_is_told_with_its_first_problems(world: World) -> None:
    world.edit("steps_registry.json", lambda registry: registry.update(entryStep="initial.isue"))
    done = world.run([])
    assert (done.exit_code, done.outputs["outcome"]) == (2, "invalid_definition")
    assert world.wrote_nothing(but_comments=1)
    assert "initial.isue" in world.comments()[0]


@pytest.mark.whole
@pytest.mark.parametrize(
    "github", [{"enabled": False}, {"comment": {"enabled": False}}, {"allowedEffects": ["labels"]}], ids=str
)
def test_an_agent_that_wants_no_comment_gets_none(world: World, github: dict[str, object]) -> None:
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(github))
    done = world.run([], anthropic_api_key="")
    assert done.outputs["outcome"] == "misconfigured"
    assert world.wrote_nothing()


def test_somebody_who_may_only_read_causes_no_comment(world: World) -> None:
    world.github.state.permissions["bob"] = "read"
    assert world.run([], anthropic_api_key="").outputs["outcome"] == "misconfigured"
    assert world.wrote_nothing()


def test_a_dry_run_and_on_failure_nothing_write_no_comment(world: World) -> None:
    for inputs in ({"boundary": "dry-run"}, {"on_failure": "nothing"}):
        assert world.run([], anthropic_api_key="", **inputs).outputs["outcome"] == "misconfigured"
        assert world.requests_made() == 0


@pytest.mark.whole
def test_the_run_after_a_missing_key_takes_its_comment_over(world: World) -> None:
    world.run([], anthropic_api_key="")
    assert world.run(solve()).outputs["outcome"] == "completed"
    (comment,) = world.comments()
    assert "There is no API key" not in comment


@pytest.mark.whole
def test_what_is_not_committed_before_the_run_is_told_with_the_way_out(world: World) -> None:
    assert "[Checkout]" not in world.run([], setup="true").log
    (world.checkout / "build.log").write_text("from yesterday\n")
    (warning,) = [line for line in world.run([]).log.splitlines() if "[Checkout]" in line]
    assert "Before the run, these files are not committed: build.log." in warning
    (world.checkout / "build.log").unlink()
    for number in range(5):
        folder = world.checkout / f"{number}-a-folder-with-a-name-that-is-as-long-as-the-way-to-a-file"
        folder.mkdir()
        (folder / "file").touch()
    (warning,) = [line for line in world.run([]).log.splitlines() if "[Checkout]" in line]
    assert "committed: 0-a-folder-with-a-name-that-is-as-long-as-the-way-to-a-file/ and 4 more." in warning
    assert warning.endswith("name them in .gitignore and commit that."), "names of files do not cut it off"


@pytest.mark.whole
def test_what_setup_leaves_behind_is_told_before_the_model_is_asked(world: World) -> None:
    done = world.run([], setup="for at in 1 2 3 4 5 6 7; do touch made-$at; done")
    (warning,) = [line for line in done.log.splitlines() if "[Checkout]" in line]
    assert "After setup, these files are not committed: made-1, made-2, made-3, made-4, made-5 and 2 more." in warning
    assert done.log.index("[Checkout]") < done.log.index("Iteration 1")


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
    ("limit_reached", nothing, [understood()], {"limits": {"iterations": 1}}, None),
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
