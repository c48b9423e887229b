"""Brings a run's commits into the user's own repository on this machine, as a branch that was not there before."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from stepflow.domain.checkout import excludes_branch
from stepflow.errors import BoundaryError, InputError

if TYPE_CHECKING:
    from pathlib import Path

#: Nothing of the user's configuration may run or rewrite anything.
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")
_SECONDS = 300


def local_branch(agent: str, issue: int | None, run_id: str) -> str:
    """The name of the branch of a run's commits."""
    return f"stepflow/{agent}/{f'issue-{issue}' if issue else f'run-{run_id}'}"


def fetch_branch(repository: Path, bundle: Path, branch: str) -> str:
    """Fetch the commits of the bundle as a branch of this name, or with a number behind it; the name. Neither the work
    tree nor any branch that is there changes. Raises `BoundaryError` when git cannot."""
    name, number = branch, 1
    while _git(repository, "rev-parse", "--quiet", "--verify", f"refs/heads/{name}", may_fail=True):
        number += 1
        name = f"{branch}-{number}"
    options = ("--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules")
    _git(repository, "-c", "fetch.fsckObjects=true", "fetch", *options, str(bundle), f"HEAD:refs/heads/{name}")
    return name


def check_branch(repository: Path, branch: str) -> None:
    """Try before a run what `fetch_branch` needs at its end. Raises `InputError` where it would fail."""
    try:
        objects = repository / _git(repository, "rev-parse", "--git-path", "objects")
        names = _git(repository, "for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads").splitlines()
    except BoundaryError as exc:
        raise InputError(
            f"The run's commits could not be brought into {repository} at its end: {exc.message}",
            hint="Where the repository belongs to somebody else, run as its owner, or trust it as git says.",
        ) from exc
    if not os.access(objects, os.W_OK):
        raise InputError(
            f"The run's commits could not be brought into {repository} at its end: {objects} cannot be written.",
            hint="Run as the owner of the repository, or with --in-place.",
        )
    if in_the_way := next((name for name in names if excludes_branch(name, branch)), ""):
        raise InputError(
            f"The run's branch would be `{branch}`, and git cannot make it beside the branch `{in_the_way}`, which is "
            f"in {repository}.",
            hint=f"Rename it: git branch -m {in_the_way} NEW-NAME",
        )


def clone_history(repository: Path, target: Path) -> None:
    """The history of a linked worktree as a `.git` folder of its own, with the worktree's HEAD."""
    work = target.with_name("clone")
    _git(repository, "clone", "--quiet", "--no-checkout", "--no-hardlinks", "--template=", ".", str(work))
    (work / ".git").rename(target)
    shutil.rmtree(work)


def _git(repository: Path, *words: str, may_fail: bool = False) -> str:
    """What git says, run by the user in the user's own repository."""
    settings = [word for setting in _QUIET for word in ("-c", setting)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - fixed options, no shell
            ["git", *settings, *words],  # noqa: S607 - the user's own git
            cwd=repository,
            env=environment | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BoundaryError(f"git does not run in {repository}: {exc}.", hint="Install git.") from exc
    if done.returncode and not may_fail:
        said = done.stderr.encode(errors="surrogateescape").decode(errors="replace").strip()
        raise BoundaryError(f"git failed in {repository}: {said}.")
    return done.stdout.strip()
