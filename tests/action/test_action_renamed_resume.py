"""A run that goes on after its repository was renamed or transferred: it is the same one by its id, not by its name."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepflow.cli import main
from tests.action.follow_up_world import PULL, follow_up, improve, reviewed
from tests.action.review_world import labeled, let_review, looks, propose, review
from tests.checkout import Invocation
from tests.world import BRANCH, MODEL_KEY, TOKEN, World, label_event, solve, understood

pytestmark = pytest.mark.whole


@pytest.fixture(autouse=True)
def by_id(world: World) -> None:
    """Every runner says which repository it is by its id."""
    world.runner.environ |= {"GITHUB_REPOSITORY": "o/r", "GITHUB_REPOSITORY_ID": "1"}


@pytest.fixture
def folder(world: World) -> str:
    """The run folder that every job of these tests is given."""
    return str(world.runner.folder / "mine")


def move(world: World, name: str = "o/new", *, number: str = "1") -> None:
    """The repository has another name, or another one has its name: later jobs are in the one with this id."""
    if number == "1":
        world.rename(name)
    world.runner.environ |= {"GITHUB_REPOSITORY": name, "GITHUB_REPOSITORY_ID": number}


def here(world: World, event: dict[str, Any]) -> dict[str, Any]:
    """The event as GitHub sends it from where the repository is now."""
    return {**event, "repository": {**event["repository"], "full_name": world.runner.environ["GITHUB_REPOSITORY"]}}


def plan(world: World, folder: str) -> None:
    """A run that waits for approval."""
    change = {"approval": {"by": "write"}}
    world.edit("steps_registry.json", lambda it: it["steps"]["continuation.issue"].update(change))
    done = world.run([understood()], run_folder=folder)
    assert done.outputs["outcome"] == "awaiting_approval", done.log


def approve(world: World, folder: str, replies: Any) -> Invocation:
    """bob approves what is asked on the issue."""
    (digest,) = re.findall(r"approves ([0-9a-f]{20})", world.comments()[0])
    user = {"login": "bob", "type": "User"}
    comment = {"body": f"/stepflow approve {digest}", "user": user, "author_association": "MEMBER"}
    event = {**label_event(), "action": "created", "comment": comment, "sender": user}
    world.play(replies)
    return world.runner.run(here(world, event), name="issue_comment", run_folder=folder)


def forget(folder: str, *names: str, **facts: Any) -> None:
    """Let the folder be that of a run which was told less, or something else, of its repository."""
    path = Path(folder) / "journal.jsonl"
    events = [json.loads(line) for line in path.read_text().splitlines()]
    started = next(event for event in events if event["event"] == "run_started")
    started.update(facts)
    for name in names:
        del started[name]
    path.write_text("".join(json.dumps(event) + "\n" for event in events))


@pytest.mark.parametrize("name", ["o/new", "p/r"], ids=["renamed", "transferred"])
def test_a_plan_is_approved_after_its_repository_moved(world: World, folder: str, name: str) -> None:
    plan(world, folder)
    move(world, name)
    done = approve(world, folder, solve()[1:])
    assert (done.exit_code, done.outputs["outcome"]) == (0, "completed"), done.log
    assert len(world.model.bodies) == len(solve())
    assert done.outputs["pull-request-url"].startswith(f"{world.github.web_url}/{name}/pull/")
    assert BRANCH in world.branches()


def test_a_plan_of_another_repository_that_has_the_name_now_is_not_approved(world: World, folder: str) -> None:
    plan(world, folder)
    move(world, "o/r", number="2")
    done = approve(world, folder, solve()[1:])
    assert (done.exit_code, done.outputs["outcome"]) == (1, "refused"), done.log
    assert "it is of another repository" in done.outputs["reason"]
    assert len(world.model.bodies) == 1


@pytest.mark.parametrize(("name", "outcome"), [("O/R", "completed"), ("o/new", "refused")])
def test_without_an_id_the_name_decides(world: World, folder: str, name: str, outcome: str) -> None:
    plan(world, folder)
    forget(folder, "repository_id")
    forget(folder, repository=name)
    assert approve(world, folder, solve()[1:]).outputs["outcome"] == outcome


@pytest.mark.parametrize("taken", [False, True], ids=["free", "taken"])
def test_a_plan_is_approved_at_a_terminal_after_its_repository_moved(
    world: World, folder: str, monkeypatch: pytest.MonkeyPatch, taken: bool
) -> None:
    plan(world, folder)
    (digest,) = re.findall(r"approves ([0-9a-f]{20})", world.comments()[0])
    world.rename(taken=taken)
    known = {"ANTHROPIC_API_KEY": MODEL_KEY, "GITHUB_TOKEN": TOKEN, "STEPFLOW_READ_TOKEN": TOKEN, "GITHUB_ACTOR": "bob"}
    for name, value in known.items():
        monkeypatch.setenv(name, value)
    world.play(solve()[1:])
    assert main(["resume", folder, "--approve", digest]) == 0
    assert BRANCH in world.branches()


def test_a_run_that_was_interrupted_goes_on_after_its_repository_moved(world: World, folder: str) -> None:
    assert world.run(solve()[:2], run_folder=folder, on_failure="nothing").outputs["outcome"] == "model_failed"
    asked = len(world.model.bodies)
    move(world)
    done = world.run(solve()[2:], here(world, label_event()), run_folder=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert len(world.model.bodies) == asked + 2
    assert done.outputs["pull-request-url"].startswith(f"{world.github.web_url}/o/new/pull/")


def test_what_was_written_before_the_move_is_not_written_twice(world: World, folder: str) -> None:
    world.github.fail("PATCH", "/issues/7$", 500, times=99)
    world.github.fail("DELETE", "/labels/", 500, times=99)
    assert world.run(solve(), run_folder=folder, on_failure="nothing").outputs["outcome"] == "boundary_failed"
    world.github.state.faults.clear()
    before = len(world.model.bodies)
    move(world)
    done = world.run([], here(world, label_event()), run_folder=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert (len(world.model.bodies), len(world.pulls()), len(world.comments())) == (before, 1, 1)
    assert done.outputs["comment-url"].startswith(f"{world.github.web_url}/o/new/issues/7")


def test_a_complete_run_names_what_it_wrote_where_that_is_now(world: World, folder: str) -> None:
    before = world.run(solve(), run_folder=folder).outputs
    move(world)
    done = world.run([], here(world, label_event()), resume=folder)
    assert "is complete; there is nothing to resume" in done.log
    for name in ("pull-request-url", "comment-url"):
        assert done.outputs[name] == before[name].replace("/o/r/", "/o/new/") != ""
    assert (done.outputs["branch"], done.outputs["commit"]) == (before["branch"], before["commit"])


def test_a_follow_up_goes_on_after_its_repository_moved(opened: World, folder: str) -> None:
    assert follow_up(opened, improve()[:1], run_folder=folder).outputs["outcome"] == "model_failed"
    before = opened.branches()[BRANCH]
    move(opened)
    done = follow_up(opened, improve()[1:], here(opened, reviewed()), run_folder=folder)
    assert (done.outputs["outcome"], done.outputs["pull-request"]) == ("completed", str(PULL)), done.log
    assert done.outputs["pull-request-url"] == f"{opened.github.web_url}/o/new/pull/{PULL}"
    assert opened.branches()[BRANCH] != before


def test_a_review_goes_on_after_its_repository_moved(world: World, folder: str) -> None:
    let_review(world)
    number = propose(world, {"greeting.txt": "Hello there\n"})
    event = labeled(world, number)
    assert review(world, event, looks()[:1], run_folder=folder).outputs["outcome"] == "model_failed"
    move(world)
    done = review(world, here(world, event), looks()[1:], run_folder=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert len(world.github.state.reviews) == 1
    assert done.outputs["comment-url"].startswith(f"{world.github.web_url}/o/new/pull/{number}#")
