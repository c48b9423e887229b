"""The branch for a run's commits: its name, whether the server will accept it, and the final choice between a branch
that holds only commits of earlier runs and a new one."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepflow.boundary.commit_check import Commit, read_commits, read_trailers
from stepflow.boundary.git import Git, GitFailed, Remote
from stepflow.boundary.github_failures import NOT_FOUND, WriteFailed
from stepflow.boundary.github_types import PullRequest
from stepflow.boundary.settings import Refused
from stepflow.domain.agent.definition import AgentDefinition
from stepflow.domain.checkout import excludes_branch
from stepflow.domain.run import RunFacts
from stepflow.errors import BoundaryError, InputError

_BRANCH = re.compile(r"(?![-/])(?!.*(?:\.\.|//|/\.|\.lock(?:/|\Z)|@\{))[A-Za-z0-9._/+@=-]{1,200}(?<![./])")
MOST_BRANCHES = 20
HEADS = "refs/heads/"
RUN_TRAILER = "Stepflow-Run"
KEPT_IN_BUNDLE = "The commits are kept in work.bundle in the run folder"
WORK_IS_KEPT = f"{KEPT_IN_BUNDLE}, and with `on-failure: push-branch` on a branch as well."
#: How far below its tip a branch is followed. Commits of the base that lie deeper count as the branch's own, so that
#: the branch is left alone.
DEPTH = 1000


def branch_name(agent: AgentDefinition, facts: RunFacts) -> str:
    """`<prefix><agent>/issue-<n>`, or `run-<id>` without an issue."""
    return branch_of(agent, f"issue-{facts.issue.number}" if facts.issue else f"run-{facts.run_id}")


def unfinished_branch(agent: AgentDefinition, facts: RunFacts) -> str:
    """Where the work of a run that did not complete may be kept. No pull request shows it, since one is opened from
    `branch_name` alone: what a pull request shows was validated."""
    branch = branch_of(agent, f"run-{facts.run_id}")
    return branch if facts.issue or facts.follow_up else f"{branch}-unfinished"


def branch_of(agent: AgentDefinition, last: str) -> str:
    """A branch of the agent's runs; `last` says which run. A rehearsal's is named after its scenario, in any script."""
    name, last = (re.sub(r"[^A-Za-z0-9._-]+", "-", part) for part in (agent.name, last))
    return f"{agent.github.pull_request.branch_prefix}{name}/{last}"


def branch_problem(branch: str, base: str) -> str:
    """Say why a branch of this name cannot have a pull request to the base; empty if it can."""
    if _BRANCH.fullmatch(branch) and branch != base:
        return ""
    return (
        f"The branch for this run's commits would be called {branch!r}, which git does not allow or which is the base "
        "branch. Change `runner.integrations.github.pullRequest.branchPrefix`."
    )


@dataclass(frozen=True, kw_only=True)
class Pushed:
    """The commit that now is the tip of the branch; `note` is what else people should know of it."""

    branch: str
    commit: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Branches:
    """The branches of the server whose name begins like ours, and its default branch with its tip."""

    tips: dict[str, str]
    default: str
    default_tip: str

    def demand_other_than_default(self, branch: str) -> None:
        """Raises `Refused` for the default branch, which no run writes to."""
        if branch == self.default:
            raise Refused(f"{branch} is the repository's default branch")

    def names(self, branch: str) -> list[str]:
        """The names that the commits may go to, best first. Raises `Refused` for the default branch."""
        self.demand_other_than_default(branch)
        names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_BRANCHES + 1))]
        return [name for name in names if name != self.default]

    def choose(self, branch: str, is_ours: Callable[[str], bool]) -> str:
        """The branch that is ours, else the first free name. `is_ours` is asked with the tip of a branch."""
        names = self.names(branch)
        ours = next((name for name in names if name in self.tips and is_ours(self.tips[name])), None)
        chosen = ours or next((name for name in names if name not in self.tips), None)
        if chosen is None:
            raise BoundaryError(
                f"{branch} and {MOST_BRANCHES - 1} more branches like it contain somebody else's commits.",
                hint="Delete those that are not needed any more.",
            )
        return chosen


def has_marks(message: str, marks: Mapping[str, str]) -> bool:
    """Whether the message ends with these trailers, as the engine writes them: with a run, and no other trailer."""
    trailers = read_trailers(message)
    return RUN_TRAILER in trailers and {RUN_TRAILER: trailers[RUN_TRAILER], **marks} == trailers


def read_own_commits(history: Git, tip: str, branches: Branches, base: str) -> tuple[Commit, ...]:
    """The commits of the branch with this tip that are neither in the base nor in the default branch, or else its tip;
    the newest first: what somebody else has put on top is met first.

    `history` is a repository for this purpose alone: it gets commits without their trees.
    """
    known = tuple(dict.fromkeys(oid for oid in (base, branches.default_tip) if oid))
    history.run_remote(
        "fetch", "--quiet", "--no-tags", "--filter=tree:0", f"--depth={DEPTH}", history.remote.url, tip, *known
    )  # fmt: skip
    commits = read_commits(history, tip, *(f"^{oid}" for oid in known))
    return commits[::-1] or read_commits(history, "--max-count=1", tip)


def moved_on(branch: str, tip: str, base: str) -> Refused:
    """Nothing is put on top of what others have pushed since the run began at the commit `base`; `tip` is empty where
    they have deleted the branch."""
    now = f"is now at {tip[:12]}" if tip else "is gone"
    return Refused(
        f"somebody else has changed the branch {branch} meanwhile: it {now}, and the run began at "
        f"{base[:12]}. Nothing was pushed to it.",
        hint="Start the run again with a comment `/stepflow run` on the pull request.",
    )


def closed_meanwhile(pull: PullRequest) -> Refused:
    """Return the refusal to push to a pull request that people have merged or closed."""
    return Refused(
        f"pull request #{pull.number} was {'merged' if pull.merged_at else 'closed'} while the run worked on "
        f"it, so nothing was pushed.",
        hint="Reopen it and start the run again with a comment `/stepflow run`, or put the label on the issue again "
        "for a new pull request.",
    )


def read_branches(git: Git, branch: str) -> Branches:
    """The branches of the server now."""
    tips, default, default_tip = {}, "", ""
    listed = git.run_remote("ls-remote", "--symref", git.remote.url, "HEAD", f"{HEADS}{branch}*")
    for line in listed.decode().splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: "):
            default = value.removeprefix("ref: ").removeprefix(HEADS)
        elif name == "HEAD":
            default_tip = value
        elif name.startswith(HEADS):
            tips[name.removeprefix(HEADS)] = value
    return Branches(tips=tips, default=default, default_tip=default_tip)


_UNKNOWN = "Whether the run's commits can be pushed could not be checked"
_IDENTITY = {f"GIT_{role}_{key}": "stepflow" for role in ("AUTHOR", "COMMITTER") for key in ("NAME", "EMAIL")}


def check_server(
    remote: Remote, *, pushes: bool, commit: str, branch: str, base: str, is_there: bool = False
) -> tuple[str, ...]:
    """Warnings. Raises `InputError` where the commit is not there, where no branch of this name can be made, where the
    base is missing, or where the token may not push, which only a token that `pushes` is asked; an answer that fails
    otherwise is only a warning. A branch that `is_there` is one that the run goes on with: then only the token is in
    question."""

    def check(remote: Remote) -> str:
        with tempfile.TemporaryDirectory(prefix="stepflow-ask-") as folder:
            git = Git(Path(folder) / "repository.git", remote, commit=commit)
            if not is_there:
                _demand_place(git, commit, branch, base)
            if pushes:
                tree = git.run("hash-object", "-t", "tree", "-w", "--stdin").decode().strip()
                own = git.run("commit-tree", tree, "-m", "probe", env=_IDENTITY).decode().strip()
                options, ref = ("--dry-run", "--quiet", "--porcelain", "--no-verify"), f"+{own}:{HEADS}{branch}"
                git.run_remote("push", *options, remote.url, ref, settings={"push.negotiate": "false"})
        return remote.url

    try:
        url = remote.follow_move(check)
    except (GitFailed, WriteFailed) as exc:
        if isinstance(exc, GitFailed) and pushes and (exc.denied or exc.status == NOT_FOUND):
            message = f"The run's commits could not be pushed to {remote.url} at its end: {exc.message}"
            raise InputError(message, hint=exc.hint) from exc
        return (f"{_UNKNOWN}: {exc.message} {exc.hint}".strip(),)
    if url != remote.url:
        return (
            f"The repository is now at {url}. The checkout and this workflow's runs still know it as {remote.url}.",
        )
    return ()


def _demand_place(git: Git, commit: str, branch: str, base: str) -> None:
    tips = _read_tips(git, branch, base)
    _demand_room(branch, tips)
    if base and base not in tips:
        raise InputError(
            f"The branch `{base}`, which the pull request targets, is not in the repository.",
            hint="Push it, or set `pullRequest.base` in agent.json to a branch that is there.",
        )
    if commit not in tips.values():
        _demand_commit(git, commit)


def _read_tips(git: Git, branch: str, base: str) -> dict[str, str]:
    parts = branch.split("/")
    names = {"/".join(parts[:depth]) for depth in range(1, len(parts))} | ({base} if base else set())
    wanted = (*sorted(HEADS + name for name in names), f"{HEADS}{branch}*")
    lines = git.run_remote("ls-remote", git.remote.url, *wanted).decode(errors="replace").splitlines()
    pairs = (line.split("\t") for line in lines)
    return {name.removeprefix(HEADS): value for value, name in pairs if name.startswith(HEADS)}


def _demand_commit(git: Git, commit: str) -> None:
    try:
        git.run_remote("fetch", "--quiet", "--no-tags", "--filter=tree:0", "--depth=1", git.remote.url, commit)
    except GitFailed as exc:
        if not exc.lacks_commit:
            raise
        raise InputError(
            f"The commit {commit[:12]}, which is checked out, is not in the repository on the server, so nothing "
            "that builds on it can be pushed.",
            hint="Push it first. If an earlier step made it: leave its changes uncommitted, or let the "
            "agent or the input `setup` do what that step does.",
        ) from exc


def _demand_room(branch: str, tips: dict[str, str]) -> None:
    """Raises `InputError` if the name extends that of an existing branch or the other way around, as in `a` and `a/b`,
    which git cannot have together."""
    in_the_way = next((name for name in sorted(tips) if excludes_branch(name, branch)), "")
    if in_the_way:
        raise InputError(
            f"The run's branch would be `{branch}`, and git cannot create it next to the branch `{in_the_way}`, which "
            "is in the repository.",
            hint="Set `runner.integrations.github.pullRequest.branchPrefix` in agent.json to another prefix, such as "
            f"`agents/`, or rename or delete the branch `{in_the_way}`.",
        )
