"""Asks git's server before a run what the push at its end will need. Nothing is written."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from stepflow.boundary.git import Git, GitFailed, Remote
from stepflow.boundary.target_branch import HEADS
from stepflow.domain.checkout import excludes_branch
from stepflow.domain.connection import DIRECT, Connection
from stepflow.errors import InputError

if TYPE_CHECKING:
    from stepflow.domain.secrets import Redactor

#: What git and servers say where the commit is not there.
_NOT_THERE = ("not our ref", "unadvertised object", "couldn't find remote ref", "no such remote ref")
_IDENTITY = {f"GIT_{role}_{key}": "stepflow" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


@dataclass(frozen=True, kw_only=True)
class ServerCheck:
    """One repository on a server, reached on this `connection`."""

    url: str
    token: str = field(repr=False)
    redactor: Redactor
    connection: Connection = DIRECT

    def check(self, *, commit: str, branch: str, base: str) -> tuple[str, ...]:
        """Warnings. Raises `InputError` where the commit is not there, where no branch of this name can be made, where
        the base is missing, or where the token may not push; an answer that fails otherwise is only a warning."""
        with tempfile.TemporaryDirectory(prefix="stepflow-ask-") as folder:
            git = Git(
                Path(folder) / "repository.git",
                Remote(url=self.url, token=self.token),
                object_format="sha256" if len(commit) == 64 else "sha1",
                redactor=self.redactor,
                connection=self.connection,
            )
            try:
                self._check(git, commit, branch, base)
            except GitFailed as exc:
                if exc.denied:
                    message = f"The run's commits could not be pushed to {self.url} at its end: {exc.message}"
                    raise InputError(message, hint=exc.hint) from exc
                told = f"It could not be asked whether the run's commits can be pushed: {exc.message} {exc.hint}"
                return (told.strip(),)
        return ()

    def _check(self, git: Git, commit: str, branch: str, base: str) -> None:
        tips = self._tips(git, branch, base)
        _demand_room(branch, tips)
        if base and base not in tips:
            raise InputError(
                f"The branch `{base}`, which the pull request is to go to, is not in the repository.",
                hint="Push it, or set `pullRequest.base` in agent.json to a branch that is there.",
            )
        if commit not in tips.values():
            self._demand_commit(git, commit)
        own = git.run("commit-tree", _empty_tree(git), "-m", "probe", env=_IDENTITY).decode().strip()
        probe = ("push", "--dry-run", "--quiet", "--porcelain", "--no-verify", self.url, f"+{own}:{HEADS}{branch}")
        git.run_remote("-c", "push.negotiate=false", *probe)

    def _tips(self, git: Git, branch: str, base: str) -> dict[str, str]:
        parts = branch.split("/")
        names = {"/".join(parts[:depth]) for depth in range(1, len(parts))} | ({base} if base else set())
        wanted = (*sorted(HEADS + name for name in names), f"{HEADS}{branch}*")
        lines = git.run_remote("ls-remote", self.url, *wanted).decode(errors="replace").splitlines()
        pairs = (line.split("\t") for line in lines)
        return {name.removeprefix(HEADS): value for value, name in pairs if name.startswith(HEADS)}

    def _demand_commit(self, git: Git, commit: str) -> None:
        try:
            git.run_remote("fetch", "--quiet", "--no-tags", "--filter=tree:0", "--depth=1", self.url, commit)
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
