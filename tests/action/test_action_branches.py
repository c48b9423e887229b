"""What a run pushes to: the base of its pull request, commits by GitHub, and branches with commits of people."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from tests.action.follow_up_world import check_out, follow_up, open_pull_request, push_by_person
from tests.checkout import Invocation, git
from tests.servers.bare_repository import BareRepository
from tests.servers.messages_api import Reply
from tests.world import BRANCH, CLOSING, COMMIT, World, answer, bash, label_event, solve, understood

pytestmark = pytest.mark.whole

RELEASE = "release/1"
DISPATCHED: dict[str, Any] = {
    "inputs": {},
    "repository": {"full_name": "o/r", "default_branch": "main"},
    "sender": {"login": "bob", "type": "User"},
}


def release_on(world: World, branch: str, *, detached: bool = False) -> str:
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
    release_on(world, RELEASE, detached=detached)
    done = dispatch(world, f"refs/heads/{RELEASE}")
    assert done.outputs["outcome"] == "completed", done.log
    assert [pull["base"] for pull in world.pulls()] == [RELEASE]


@pytest.mark.fast
@pytest.mark.parametrize("detached", [False, True])
def test_tools_and_checks_work_on_the_branch_that_is_pushed_beside_the_base_branch(
    world: World, detached: bool
) -> None:
    """pre-commit's hook `no-commit-to-branch` asks as this check does."""
    world.edit(
        "steps_registry.json",
        lambda registry: add_check(registry, f'test "$(git symbolic-ref HEAD)" = refs/heads/{BRANCH}'),
    )
    if detached:
        git("checkout", "--quiet", "--detach", cwd=world.checkout)
    (world.checkout / "built.txt").write_text("what an earlier step of the job left, in no commit\n")
    done = world.run([understood(), bash("git rev-parse --verify main && rm built.txt"), *solve()[1:]])
    assert done.outputs["outcome"] == "completed", done.log
    assert done.outputs["branch"] == BRANCH
    assert (world.checkout / "built.txt").is_file()


def add_check(registry: dict[str, Any], command: str) -> None:
    """Let the closing ask one more command."""
    pattern, *_ = registry["failurePatterns"]
    check = {"type": "command", "command": command, "successWhen": "exitCode:0", "failurePattern": pattern}
    registry["validators"]["own"] = check
    for entry in registry["validationSteps"].values():
        entry["validationConditions"].append({"validator": "own"})


def test_the_branch_that_a_step_checked_out_is_the_base_on_any_event(world: World) -> None:
    release_on(world, RELEASE)
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
    release_on(world, RELEASE, detached=True)
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
    release_on(world, RELEASE)
    done = dispatch(world, f"refs/heads/{RELEASE}")
    assert done.outputs["outcome"] == "completed", done.log
    (body,) = [pull["body"] for pull in world.pulls()]
    assert "Closes #7" not in body
    for text in (body, world.comments()[-1]):
        assert "Close #7 by hand after the merge" in text
        assert f"`{RELEASE}`" in text
    assert world.github.state.issues[7]["state"] == "open"


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


OUR_NAME, OUR_ADDRESS = "github-actions[bot]", "41898282+github-actions[bot]@users.noreply.127.0.0.1"


def greet(text: str) -> list[Reply]:
    """The shortest way to a pull request, with another change each time."""
    return [
        understood(),
        bash(f"echo 'hello, world {text}' > greeting.txt && {COMMIT}"),
        answer("continuation.issue", "handoff", summary="the world is greeted"),
        answer("closure.issue", "closing", **CLOSING),
    ]


def improve(text: str) -> list[Reply]:
    """A follow-up with one more commit."""
    return [
        bash(f"echo 'hello, world {text}' > greeting.txt && {COMMIT}"),
        answer("continuation.issue", "handoff", summary="louder"),
        answer("closure.issue", "closing", comment="The review is followed."),
    ]


def label(world: World, text: str = "again", **inputs: str) -> Invocation:
    """The label is put on once more, with main checked out."""
    check_out(world)
    return world.run(greet(text), **inputs)


def apply_suggestion(world: World, branch: str = BRANCH, text: str = "hello, dear world") -> str:
    """bob applies a suggestion of a review: GitHub commits and signs for him."""
    repository = BareRepository(world.served)
    return repository.append(
        branch,
        world.branches()[branch],
        "Update greeting.txt\n\nCo-authored-by: eve <12+eve@users.noreply.github.com>",
        {"greeting.txt": b64encode(f"{text}\n".encode()).decode()},
        [],
        author="bob <11+bob@users.noreply.github.com>",
        signs=True,
    )


def work_on(world: World, branch: str, *commands: tuple[str, ...], identity: tuple[str, str] | None = None) -> str:
    """Somebody checks the branch out, runs git there, and pushes it; the new tip. The identity is a person's, or one
    that another workflow has set."""
    check_out(world, world.branches()[branch])
    name, address = identity or ("bob", "bob@example.com")
    for command in commands:
        git("-c", f"user.name={name}", "-c", f"user.email={address}", *command, cwd=world.checkout)
    git("push", "--quiet", "--force", str(world.served), f"HEAD:{branch}", cwd=world.checkout)
    check_out(world)
    return world.branches()[branch]


def is_kept(world: World, commit: str) -> bool:
    """Whether some branch has the commit."""
    return commit in git("rev-list", "--branches", cwd=world.served).split()


@pytest.mark.parametrize(
    ("commits", "change"),
    [("git", push_by_person), ("verified", apply_suggestion)],
    ids=["pushed", "suggestion applied"],
)
def test_a_commit_below_a_follow_up_is_not_pushed_over(
    world: World, commits: str, change: Callable[[World], str]
) -> None:
    world.runner.inputs["commits"] = commits
    opened = open_pull_request(world)
    theirs = change(opened)
    done = follow_up(opened, improve("twice"))
    assert done.outputs["outcome"] == "completed", done.log
    followed_up = opened.branches()[BRANCH]
    done = label(opened)
    assert (done.outputs["outcome"], done.outputs["branch"]) == ("completed", f"{BRANCH}-2"), done.log
    assert opened.branches()[BRANCH] == followed_up
    assert is_kept(opened, theirs)
    assert (
        f"Branch `{BRANCH}` contains somebody else's commits, so those of this run are on `{BRANCH}-2`."
        in (opened.comments()[-1])
    )
    done = label(opened, "a third time")
    assert done.outputs["branch"] == f"{BRANCH}-2", done.log


def test_a_branch_of_runs_and_follow_ups_alone_is_replaced_also_when_main_has_moved_on(world: World) -> None:
    world.runner.inputs["commits"] = "verified"
    opened = open_pull_request(world)
    assert follow_up(opened, improve("twice")).outputs["outcome"] == "completed"
    work_on(opened, "main", ("commit", "--quiet", "--allow-empty", "--message", "Main goes on"))
    done = label(opened)
    assert (done.outputs["outcome"], done.outputs["branch"]) == ("completed", BRANCH), done.log
    assert opened.branches().keys() == {"main", BRANCH}


CHANGED: dict[str, tuple[tuple[tuple[str, ...], ...], tuple[str, str] | None]] = {
    "updated by the button": ((("merge", "--quiet", "--no-ff", "--no-edit", "origin/main"),), None),
    "amended by another workflow of the same account": (
        (("commit", "--quiet", "--amend", "--no-edit", "--allow-empty"),),
        (OUR_NAME, OUR_ADDRESS),
    ),
    "a person's commit, brought by another workflow": (
        (
            ("commit", "--quiet", "--allow-empty", "--author=bob <bob@example.com>", "--reuse-message=HEAD"),
            ("commit", "--quiet", "--amend", "--no-edit", "--allow-empty", "--author=bob <bob@example.com>"),
        ),
        (OUR_NAME, OUR_ADDRESS),
    ),
    "our message with a co-author": (
        (("commit", "--quiet", "--allow-empty", "--message={ours}\nCo-authored-by: eve <eve@example.com>"),),
        (OUR_NAME, OUR_ADDRESS),
    ),
}


@pytest.mark.parametrize(("commands", "identity"), CHANGED.values(), ids=CHANGED)
def test_a_commit_that_is_not_provably_a_runs_counts_as_a_persons(
    opened: World, commands: tuple[tuple[str, ...], ...], identity: tuple[str, str] | None
) -> None:
    work_on(opened, "main", ("commit", "--quiet", "--allow-empty", "--message", "Main goes on"))
    ours = git("log", "-1", "--format=%B", BRANCH, cwd=opened.served).strip()
    filled = [tuple(word.replace("{ours}", ours) for word in command) for command in commands]
    theirs = work_on(opened, BRANCH, *filled, identity=identity)
    done = label(opened)
    assert (done.outputs["outcome"], done.outputs["branch"]) == ("completed", f"{BRANCH}-2"), done.log
    assert opened.branches()[BRANCH] == theirs
