"""Finds a branch that is ours to write and pushes one commit to it: never the default branch, never somebody else's
commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.git import GitFailed
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


@dataclass(frozen=True, kw_only=True)
class OwnSigns:
    """What a commit of ours for this agent and issue carries: our account's address as its committer's, and these
    lines in its last paragraph. Whoever changes or adds a commit becomes its committer."""

    committer: str
    trailers: frozenset[str]


def push_commit(
    git: Git, url: str, branch: str, commit: str, *, replaces: str | None, signs: OwnSigns | None = None
) -> Pushed:
    """Push the commit; once more, to another branch, if somebody was faster. Without `signs` only a branch that stands
    at `replaces` is ours; with them it must carry them as well, for what our comment says may come from a receipt in a
    forged run folder."""

    def is_ours(tip: str) -> bool:
        return tip == replaces if signs is None else _carries(git, url, tip, signs)

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


def _carries(git: Git, url: str, tip: str, signs: OwnSigns) -> bool:
    """An earlier run may have been cut off between its push and the comment that would name its commit."""
    git.run_remote("fetch", "--quiet", "--no-tags", "--depth=1", url, tip)
    committer, _, message = git.run("log", "-1", "--format=%ce%n%B", tip).decode(errors="replace").partition("\n")
    last = message.strip().rpartition("\n\n")[2]
    return committer == signs.committer and signs.trailers <= set(last.splitlines())


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
