"""The pull request goes to the branch that the run's commits build on, and what its merge will not do is said."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checkout import Invocation, git
from tests.world import World, label_event, solve

pytestmark = pytest.mark.whole

RELEASE = "release/1"
DISPATCHED: dict[str, Any] = {
    "inputs": {},
    "repository": {"full_name": "o/r", "default_branch": "main"},
    "sender": {"login": "bob", "type": "User"},
}


def check_out(world: World, branch: str, *, detached: bool = False) -> str:
    """A branch with a commit of its own, as actions/checkout leaves it; its commit."""
    checkout = world.checkout
    git("checkout", "--quiet", "-B", branch, cwd=checkout)
    git("commit", "--quiet", "--allow-empty", "--message", "Release", cwd=checkout)
    git("push", "--quiet", str(world.served), f"HEAD:refs/heads/{branch}", cwd=checkout)
    git("update-ref", f"refs/remotes/origin/{branch}", "HEAD", cwd=checkout)
    if detached:
        git("checkout", "--quiet", "--detach", cwd=checkout)
    return git("rev-parse", "HEAD", cwd=checkout).strip()


def dispatch(world: World, ref: str, **inputs: str) -> Invocation:
    world.runner.environ = {"GITHUB_REF": ref}
    world.play(solve())
    given = {"agent": "fixer", "issue": "7", "issue-text": "Greet the world", **inputs}
    return world.runner.run(DISPATCHED, name="workflow_dispatch", **given)


@pytest.mark.parametrize("detached", [False, True])
def test_a_dispatched_branch_is_the_base(world: World, detached: bool) -> None:
    check_out(world, RELEASE, detached=detached)
    done = dispatch(world, f"refs/heads/{RELEASE}")
    assert done.outputs["outcome"] == "completed", done.log
    assert [pull["base"] for pull in world.pulls()] == [RELEASE]


def test_the_branch_that_a_step_checked_out_is_the_base_on_any_event(world: World) -> None:
    check_out(world, RELEASE)
    world.runner.environ = {"GITHUB_REF": "refs/heads/main"}
    done = world.run(solve(), label_event())
    assert done.outputs["outcome"] == "completed", done.log
    assert [pull["base"] for pull in world.pulls()] == [RELEASE]


def test_a_branch_of_this_machine_alone_is_no_base(world: World) -> None:
    git("checkout", "--quiet", "-b", "prepared", cwd=world.checkout)
    done = dispatch(world, "refs/heads/main")
    assert done.outputs["outcome"] == "completed", done.log
    assert [pull["base"] for pull in world.pulls()] == ["main"]


def test_a_run_goes_on_only_where_its_pull_request_goes_to_the_same_base(world: World) -> None:
    """A comment's event is of the default branch, whatever branch the run was dispatched on."""
    folder = str(world.runner.folder / "mine")
    check_out(world, RELEASE, detached=True)
    world.github.fail("POST", "/labels|/comments$", 403, times=9)
    done = dispatch(world, f"refs/heads/{RELEASE}", run_folder=folder, on_failure="nothing")
    assert done.outputs["outcome"] == "boundary_failed", done.log
    world.github.state.faults.clear()
    done = dispatch(world, "refs/heads/main", resume=folder)
    assert (done.exit_code, done.outputs["outcome"]) == (2, "misconfigured"), done.log
    assert f"its pull request goes to {RELEASE}, and not to main" in done.outputs["reason"]
    git("checkout", "--quiet", RELEASE, cwd=world.checkout)
    done = dispatch(world, "refs/heads/main", resume=folder)
    assert done.outputs["outcome"] == "completed", done.log
    assert [pull["base"] for pull in world.pulls()] == [RELEASE]


def test_agent_json_has_the_last_word(world: World) -> None:
    git("branch", "develop", "main", cwd=world.served)
    world.edit("agent.json", lambda agent: pull_request(agent).update(base="develop"))
    git("push", "--quiet", "--force", str(world.served), "main:develop", cwd=world.checkout)
    done = dispatch(world, "refs/heads/main")
    assert done.outputs["outcome"] == "completed", done.log
    assert [pull["base"] for pull in world.pulls()] == ["develop"]


def pull_request(agent: dict[str, Any]) -> dict[str, Any]:
    github = agent["runner"]["integrations"]["github"]
    settings: dict[str, Any] = github.setdefault("pullRequest", {})
    return settings


def test_a_merge_that_will_not_close_the_issue_is_told_in_pull_request_and_comment(world: World) -> None:
    world.edit("agent.json", lambda agent: agent["runner"]["integrations"]["github"].update(closeBy="merge"))
    check_out(world, RELEASE)
    done = dispatch(world, f"refs/heads/{RELEASE}")
    assert done.outputs["outcome"] == "completed", done.log
    (body,) = [pull["body"] for pull in world.pulls()]
    assert "Closes #7" not in body
    for text in (body, world.comments()[-1]):
        assert "Close #7 by hand after the merge" in text
        assert f"`{RELEASE}`" in text
    assert world.github.state.issues[7]["state"] == "open"
