"""What people commit to a branch of ours stays on some branch, whatever runs and follow-ups do next.
`tests/boundary/test_boundary_human_commits.py` tries random orders."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

import pytest

from tests.action.follow_up_world import check_out, follow_up, open_pull_request, push_by_person
from tests.checkout import Invocation, git
from tests.servers.bare_repository import BareRepository
from tests.servers.messages_api import Reply
from tests.world import BRANCH, CLOSING, COMMIT, World, answer, bash, understood

pytestmark = pytest.mark.whole

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
