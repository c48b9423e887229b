"""Asks git's server before a run what the push at its end will need. Nothing is written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.boundary.git import Git, GitFailed, Remote, follow_move
from stepflow.boundary.retry_policy import NOT_FOUND, WriteFailed
from stepflow.boundary.target_branch import HEADS
from stepflow.domain.checkout import excludes_branch
from stepflow.domain.connection import DIRECT, Connection
from stepflow.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.domain.secrets import Redactor

#: What git and servers say where the commit is not there.
_NOT_THERE = ("not our ref", "unadvertised object", "couldn't find remote ref", "no such remote ref")
_UNKNOWN = "Whether the run's commits can be pushed could not be checked"
_IDENTITY = {f"GIT_{role}_{key}": "stepflow" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


@dataclass(frozen=True, kw_only=True)
class ServerCheck:
    """One repository on a server, reached on this `connection`. `present_url` asks where it is when it is no longer at
    `url`."""

    url: str
    token: str = field(repr=False)
    redactor: Redactor
    connection: Connection = DIRECT
    present_url: Callable[[], str] | None = None

    def check(self, *, commit: str, branch: str, base: str, is_there: bool = False) -> tuple[str, ...]:
        """Warnings. Raises `InputError` where the commit is not there, where no branch of this name can be made, where
        the base is missing, or where the token may not push; an answer that fails otherwise is only a warning. A branch
        that `is_there` is one that the run goes on with: then only the token is in question."""
        try:
            url = follow_move(self.url, self.present_url, lambda url: self._check(url, commit, branch, base, is_there))
        except GitFailed as exc:
            if exc.denied or exc.status == NOT_FOUND:
                message = f"The run's commits could not be pushed to {self.url} at its end: {exc.message}"
                raise InputError(message, hint=exc.hint) from exc
            return (f"{_UNKNOWN}: {exc.message} {exc.hint}".strip(),)
        except WriteFailed as exc:
            return (f"{_UNKNOWN}: {exc.message} {exc.hint}".strip(),)
        if url != self.url:
            return (
                f"The repository is now at {url}. The checkout and this workflow's runs still know it as {self.url}.",
            )
        return ()

    def _check(self, url: str, commit: str, branch: str, base: str, is_there: bool) -> str:
        with tempfile.TemporaryDirectory(prefix="stepflow-ask-") as folder:
            git = Git(
                Path(folder) / "repository.git",
                Remote(url=url, token=self.token),
                object_format="sha256" if len(commit) == 64 else "sha1",
                redactor=self.redactor,
                connection=self.connection,
            )
            if not is_there:
                self._demand_place(git, url, commit, branch, base)
            own = git.run("commit-tree", _empty_tree(git), "-m", "probe", env=_IDENTITY).decode().strip()
            probe = ("push", "--dry-run", "--quiet", "--porcelain", "--no-verify", url, f"+{own}:{HEADS}{branch}")
            git.run_remote(*probe, settings={"push.negotiate": "false"})
        return url

    def _demand_place(self, git: Git, url: str, commit: str, branch: str, base: str) -> None:
        tips = _read_tips(git, url, branch, base)
        _demand_room(branch, tips)
        if base and base not in tips:
            raise InputError(
                f"The branch `{base}`, which the pull request is to go to, is not in the repository.",
                hint="Push it, or set `pullRequest.base` in agent.json to a branch that is there.",
            )
        if commit not in tips.values():
            _demand_commit(git, url, commit)


def _read_tips(git: Git, url: str, branch: str, base: str) -> dict[str, str]:
    parts = branch.split("/")
    names = {"/".join(parts[:depth]) for depth in range(1, len(parts))} | ({base} if base else set())
    wanted = (*sorted(HEADS + name for name in names), f"{HEADS}{branch}*")
    lines = git.run_remote("ls-remote", url, *wanted).decode(errors="replace").splitlines()
    pairs = (line.split("\t") for line in lines)
    return {name.removeprefix(HEADS): value for value, name in pairs if name.startswith(HEADS)}


def _demand_commit(git: Git, url: str, commit: str) -> None:
    try:
        git.run_remote("fetch", "--quiet", "--no-tags", "--filter=tree:0", "--depth=1", url, commit)
    except GitFailed as exc:
        if not any(sign in exc.said for sign in _NOT_THERE):
            raise
        raise InputError(
            f"The commit {commit[:12]}, which is checked out, is not in the repository on the server, so nothing "
            "that builds on it can be pushed.",
            hint="Push it first. Where a step before this one made it: leave its changes uncommitted, or let the "
            "agent or the input `setup` do what that step does.",
        ) from exc


def _demand_room(branch: str, tips: dict[str, str]) -> None:
    """Git cannot make a branch below or above another one."""
    in_the_way = next((name for name in sorted(tips) if excludes_branch(name, branch)), "")
    if in_the_way:
        raise InputError(
            f"The run's branch would be `{branch}`, and git cannot make it beside the branch `{in_the_way}`, which is "
            "in the repository.",
            hint="Set `runner.integrations.github.pullRequest.branchPrefix` in agent.json to another prefix, such as "
            f"`agents/`, or rename or delete the branch `{in_the_way}`.",
        )


def _empty_tree(git: Git) -> str:
    return git.run("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()
