"""Brings a run's commits into the user's own repository on this machine: as a branch that was not there before, or by
moving the one that is checked out forward."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.domain.checkout import excludes_branch
from stepflow.errors import BoundaryError, InputError
from stepflow.sandbox.host_git import HEADS, run_git

if TYPE_CHECKING:
    from pathlib import Path

_FETCH = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
_CHECKED = ("fetch.fsckObjects=true",)


def local_branch(agent: str, issue: int | None, run_id: str) -> str:
    """The name of the branch of a run's commits."""
    return f"stepflow/{agent}/{f'issue-{issue}' if issue else f'run-{run_id}'}"


def bring_branch(repository: Path, bundle: Path, branch: str) -> str:
    """Fetch the commits of the bundle as a branch of this name, or with a number behind it; the name. Neither the work
    tree nor any branch that is there changes. Raises `BoundaryError` when git cannot."""
    name, number = branch, 1
    while run_git(repository, "rev-parse", "--quiet", "--verify", f"{HEADS}{name}", may_fail=True):
        number += 1
        name = f"{branch}-{number}"
    run_git(repository, *_FETCH, str(bundle), f"HEAD:{HEADS}{name}", settings=_CHECKED)
    return name


def has_commits(repository: Path, bundle: Path) -> bool:
    """Whether a branch of the repository holds the commits of the bundle."""
    commit = run_git(repository, "bundle", "list-heads", str(bundle), "HEAD", may_fail=True).partition(" ")[0]
    return bool(commit and run_git(repository, "for-each-ref", "--contains", commit, HEADS, may_fail=True))


@dataclass(frozen=True, kw_only=True)
class CheckedOut:
    """The branch that is checked out, empty where HEAD is detached, and its commit."""

    branch: str
    commit: str


def checked_out(repository: Path) -> CheckedOut:
    """What is checked out now."""
    return CheckedOut(
        branch=run_git(repository, "symbolic-ref", "--quiet", "--short", "HEAD", may_fail=True),
        commit=run_git(repository, "rev-parse", "--quiet", "--verify", "HEAD", may_fail=True),
    )


def move_branch(repository: Path, bundle: Path, before: CheckedOut) -> str:
    """Move the branch that is checked out to the commits of the bundle, with the files. Gives its name; empty, and
    nothing has changed, where it is not what was checked out `before`, or where files are in the way."""
    if not before.branch or checked_out(repository) != before:
        return ""
    run_git(repository, *_FETCH, str(bundle), "HEAD", settings=_CHECKED)
    commit = run_git(repository, "bundle", "list-heads", str(bundle), "HEAD").partition(" ")[0]
    try:
        run_git(repository, "merge", "--quiet", "--ff-only", "--no-stat", commit)
    except BoundaryError:
        return ""
    return before.branch


def check_branch(repository: Path, branch: str) -> None:
    """Try before a run what `bring_branch` needs at its end. Raises `InputError` where it would fail."""
    try:
        objects = repository / run_git(repository, "rev-parse", "--git-path", "objects")
        names = run_git(repository, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
    except BoundaryError as exc:
        raise InputError(
            f"The run's commits could not be brought into {repository} at its end: {exc.message}",
            hint="Where the repository belongs to somebody else, run as its owner, or trust it as git says.",
        ) from exc
    if not os.access(objects, os.W_OK):
        raise InputError(
            f"The run's commits could not be brought into {repository} at its end: {objects} cannot be written.",
            hint="Run as the owner of the repository.",
        )
    if in_the_way := next((name for name in names if excludes_branch(name, branch)), ""):
        raise InputError(
            f"The run's branch would be `{branch}`, and git cannot make it beside the branch `{in_the_way}`, which is "
            f"in {repository}.",
            hint=f"Rename it: git branch -m {in_the_way} NEW-NAME",
        )
