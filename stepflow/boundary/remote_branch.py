"""Finds a branch that is ours to write, and pushes one commit to it.

Takes: a commit, the wanted branch, what shows that a branch is ours. Gives: the branch that now has the commit.
May touch: the server (boundary.md "Plan, then apply"). Never the default branch, never somebody else's commits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.git_errors import GitFailed
from stepflow.boundary.writer import Pushed, Refused
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.boundary.git import Git

MOST_BRANCHES = 20
HEADS = "refs/heads/"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A branch to write: `expected` is the tip that it must still have, empty when it must not exist yet.
    `done` is true when it already has the commit."""

    branch: str
    expected: str = ""
    done: bool = False


def push_commit(git: Git, url: str, branch: str, commit: str, *, replaces: str | None) -> Pushed:
    """Push the commit; once more, to another branch, if somebody was faster."""

    def is_ours(tip: str) -> bool:
        return tip == replaces

    try:
        return _push(git, url, branch, commit, is_ours)
    except GitFailed as exc:
        if "stale info" not in exc.said and "already exists" not in exc.said:
            raise
    return _push(git, url, branch, commit, is_ours)


def choose_branch(
    branch: str, tips: Mapping[str, str], *, commit: str, is_ours: Callable[[str], bool], default: str
) -> Choice | None:
    """The branch that has the commit already, else the one that stands where we left it, else the first free name."""
    names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_BRANCHES + 1))]
    names = [name for name in names if name != default]
    for name in names:
        if tips.get(name) == commit:
            return Choice(branch=name, expected=commit, done=True)
    for name in names:
        if (tip := tips.get(name)) and is_ours(tip):
            return Choice(branch=name, expected=tip)
    return next((Choice(branch=name) for name in names if name not in tips), None)


def _push(git: Git, url: str, branch: str, commit: str, is_ours: Callable[[str], bool]) -> Pushed:
    tips, default = _remote_branches(git, url, branch)
    if branch == default:
        raise Refused(f"refused: {branch} is the repository's default branch")
    choice = choose_branch(branch, tips, commit=commit, is_ours=is_ours, default=default)
    if choice is None:
        raise BoundaryError(
            f"{branch} and {MOST_BRANCHES - 1} more branches like it hold somebody else's commits.",
            hint="Delete those that are not needed any more.",
        )
    if not choice.done:
        lease = f"--force-with-lease={HEADS}{choice.branch}:{choice.expected}"
        git.run_remote("push", "--quiet", "--porcelain", "--no-verify", lease, url, f"{commit}:{HEADS}{choice.branch}")
    return Pushed(branch=choice.branch, commit=commit)


def _remote_branches(git: Git, url: str, branch: str) -> tuple[dict[str, str], str]:
    """The tips of the branches whose name begins like ours, and the default branch."""
    tips, default = {}, ""
    for line in git.run_remote("ls-remote", "--symref", url, "HEAD", f"{HEADS}{branch}*").decode().splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: "):
            default = value.removeprefix("ref: ").removeprefix(HEADS)
        elif name.startswith(HEADS):
            tips[name.removeprefix(HEADS)] = value
    return tips, default
