"""Brings a run's commits into the user's own repository on this machine, as a branch that was not there before."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from pathlib import Path

#: Nothing of the user's configuration may run or rewrite anything.
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")
_SECONDS = 300


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
            text=True,
            check=False,
            timeout=_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise BoundaryError(f"git does not run in {repository}: {exc}.", hint="Install git.") from exc
    if done.returncode and not may_fail:
        raise BoundaryError(f"git failed in {repository}: {done.stderr.strip()}.")
    return done.stdout.strip()
