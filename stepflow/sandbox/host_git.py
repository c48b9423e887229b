"""Git as this process runs it in a repository of the user's, before and after the tools are alive."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

HEADS = "refs/heads/"
#: Nothing of the user's configuration may run or rewrite anything.
_QUIET = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false")
#: Looking at a repository that somebody else owns is harmless, and configuration of this machine is not the checkout's.
_ONLY_LOOKING = ("safe.directory=*",)
_OWN_ENVIRONMENT = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_OPTIONAL_LOCKS": "0"}
_SECONDS = 300


def run_git(
    repository: Path,
    *words: str,
    may_fail: bool = False,
    settings: tuple[str, ...] = (),
    extra_env: Mapping[str, str] | None = None,
) -> str:
    """What git prints, without the line break at its end. Raises `BoundaryError` where it fails and may not."""
    given = [word for setting in (*_QUIET, *settings) for word in ("-c", setting)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(  # noqa: S603 - fixed options, no shell
            ["git", *given, *words],  # noqa: S607 - the user's own git
            cwd=repository,
            env=environment | {"LC_ALL": "C"} | dict(extra_env or {}),
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
    return done.stdout.rstrip("\n")


def ask_git(repository: Path, *words: str, may_fail: bool = False, git_dir: Path | None = None) -> str:
    """What git says of a checkout as it stands, whoever owns it: nothing there is written and none of it runs."""
    where = {"GIT_DIR": str(git_dir)} if git_dir else {}
    return run_git(
        repository, *words, may_fail=may_fail, settings=_ONLY_LOOKING, extra_env={**_OWN_ENVIRONMENT, **where}
    )


def head_commit(repository: Path) -> str:
    """The commit that is checked out; empty without a commit, or where there is no repository."""
    return ask_git(repository, "rev-parse", "--quiet", "--verify", "HEAD^{commit}", may_fail=True)


def pushed_branch(repository: Path) -> str:
    """The branch that is checked out, where the remote `origin` had one of this name when it was asked last."""
    name = ask_git(repository, "symbolic-ref", "--quiet", "HEAD", may_fail=True).removeprefix(HEADS)
    known = name and ask_git(
        repository, "rev-parse", "--quiet", "--verify", f"refs/remotes/origin/{name}", may_fail=True
    )
    return name if known else ""
