"""`commits: verified` through the whole action: GitHub writes the commits, and git pushes none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.checkout import Invocation, git
from tests.world import BRANCH, World, answer, solve

pytestmark = pytest.mark.whole


def push_receipt(done: Invocation) -> dict[str, Any]:
    recorded = json.loads((done.folder / "effects.json").read_text())["effects"]
    return next(effect for effect in recorded if effect["kind"] == "push_branch")


def pushes(world: World) -> list[str]:
    return [request.path for request in world.git_server.requests if request.path.endswith("/git-receive-pack")]


def test_the_commits_arrive_signed_with_the_tree_that_was_validated(world: World) -> None:
    done = world.run(solve(), commits="verified")
    assert (done.outputs["outcome"], done.outputs["branch"], done.exit_code) == ("completed", BRANCH, 0), done.log
    git("fetch", "--quiet", f"{done.outputs['run-folder']}/work.bundle", "HEAD", cwd=world.checkout)
    tree = git("rev-parse", "FETCH_HEAD^{tree}", cwd=world.checkout).strip()
    assert git("rev-parse", f"{BRANCH}^{{tree}}", cwd=world.served).strip() == tree
    assert push_receipt(done)["detail"] == f"{BRANCH} (signed by GitHub; tree {tree} as validated)"
    assert done.outputs["commit"] == world.branches()[BRANCH]
    assert "gpgsig" in git("cat-file", "commit", BRANCH, cwd=world.served)
    assert world.github.mutations() == ["updateRefs", "createCommitOnBranch"]
    assert (pushes(world), len(world.pulls())) == ([], 1)


def test_a_second_run_with_the_same_work_writes_no_commit_and_keeps_the_pull_request(world: World) -> None:
    first = world.run(solve(), commits="verified")
    world.check_out_again()
    world.github.requests.clear()
    again = world.run(solve(), commits="verified")
    assert again.outputs["pull-request"] == first.outputs["pull-request"], again.log
    assert again.outputs["commit"] == first.outputs["commit"]
    assert (world.github.mutations(), pushes(world), len(world.pulls())) == ([], [], 1)


def test_unfinished_work_is_kept_on_a_signed_branch_too(world: World) -> None:
    script = [*solve()[:2], answer("continuation.issue", "abort")]
    done = world.run(script, commits="verified", on_failure="push-branch")
    branch = done.outputs["branch"]
    assert branch.startswith("stepflow/fixer/run-1001-1"), done.log
    assert "gpgsig" in git("cat-file", "commit", branch, cwd=world.served)
    assert pushes(world) == []
