"""Checks, rewrites and pushes the bundle of a run's commits: the only way in which code leaves the sandbox.

It goes to a branch that is ours to write: never the default branch, never one with somebody else's commits. Git pushes
the commits, or GitHub's API writes and signs them: `commits: verified`.
"""

from __future__ import annotations

import tempfile
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.boundary.commit_check import (
    REMOVED,
    Change,
    Commit,
    CommitRules,
    blobs_of,
    check_commits,
    clean_message,
    compare_trees,
    read_commits,
    read_trailers,
    tree_of,
)
from stepflow.boundary.git import HEADS, Git, GitFailed, Remote, describe_rule
from stepflow.boundary.github_failures import CONFLICT, NOT_FOUND, UNPROCESSABLE, WriteFailed
from stepflow.boundary.github_types import Account, CommitNow
from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.settings import MOST_BUNDLE_BYTES
from stepflow.domain.bundle import INDEX_PACK, Bundle
from stepflow.errors import BoundaryError, Refused

if TYPE_CHECKING:
    from stepflow.boundary.github_writer import GitHubWriter

RUN_TRAILER = "Stepflow-Run"
MOST_BRANCHES = 20
#: How far below its tip a branch is followed. Commits of the base that lie deeper count as the branch's own, so that
#: the branch is left alone.
DEPTH = 1000
#: Statuses of the API when somebody else was faster. GraphQL errors without a known type count as 400, and a moved ref
#: may be among them; a deleted one is 404.
_SOMEBODY_WAS_FASTER = (400, NOT_FOUND, CONFLICT)


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
        """Raise `Refused` for the default branch, which no run writes to."""
        if branch == self.default:
            raise Refused(f"{branch} is the repository's default branch")

    def names(self, branch: str) -> list[str]:
        """Return the names that the commits may go to, best first. Raises `Refused` for the default branch."""
        self.demand_other_than_default(branch)
        names = [branch, *(f"{branch}-{number}" for number in range(2, MOST_BRANCHES + 1))]
        return [name for name in names if name != self.default]

    def choose(self, branch: str, is_ours: Callable[[str], bool]) -> str:
        """Return the branch that is ours, else the first free name. `is_ours` is asked with the tip of a branch."""
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
    """Return whether the message ends with these trailers, as the engine writes them: with a run, and no other
    trailer."""
    trailers = read_trailers(message)
    return RUN_TRAILER in trailers and {RUN_TRAILER: trailers[RUN_TRAILER], **marks} == trailers


def read_own_commits(history: Git, tip: str, branches: Branches, base: str) -> tuple[Commit, ...]:
    """Return the commits of the branch with this tip that are neither in the base nor in the default branch, or else
    its tip; the newest first: what somebody else has put on top is met first.

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


def read_branches(git: Git, branch: str) -> Branches:
    """Return the branches of the server now."""
    tips, default, default_tip = {}, "", ""
    listed = git.run_remote("ls-remote", "--symref", git.remote.url, "HEAD", f"{HEADS}{branch}*")
    for line in listed.decode(errors="replace").split("\n"):
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: "):
            default = value.removeprefix("ref: ").removeprefix(HEADS)
        elif name == "HEAD":
            default_tip = value
        elif name.startswith(HEADS):
            tips[name.removeprefix(HEADS)] = value
    return Branches(tips=tips, default=default, default_tip=default_tip)


@dataclass(frozen=True, kw_only=True)
class BundlePush:
    """Pushes one bundle. `tree` is the tree that the validators saw, when they ran: another one may not leave.

    `folder` must be the parent's own, out of the sandbox's reach.
    """

    remote: Remote
    bundle: Path
    folder: Path
    base_commit: str
    run_id: str
    agent: str
    issue: int | None = None
    tree: str | None = None
    rules: CommitRules = field(default_factory=CommitRules)
    #: Where GitHub is to write and sign the commits; without it git pushes them.
    signer: GitHubWriter | None = None

    def push(self, branch: str, *, author: Account, fast_forward: bool = False) -> Pushed:
        """Check and rewrite the bundle's commits, and push them to `branch`, or to `<branch>-2` and so on if that has
        a commit of somebody else's. To `fast_forward` is to put them on top of this very branch, which must stand at
        the base.

        Raises `Refused` when the commits may not leave, `BoundaryError` when git or the server fail.
        """
        remote = self.remote
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="push-") as scratch:
            git = Git(Path(scratch) / "repository.git", remote, commit=self.base_commit)
            git.run_remote("fetch", "--quiet", "--no-tags", "--depth=1", remote.url, self.base_commit)
            rules = replace(self.rules, by_api=self.signer is not None)
            checked = check_commits(git, self._unbundle(git), base=self.base_commit, rules=rules)
            for violation in checked.violations:
                raise Refused(violation.message, hint=violation.hint)
            history = git.make_sibling("history.git")
            if self.signer:
                planned = self._plan_verified(git, checked.commits)
                verified = VerifiedPush(
                    bundle=self, git=git, history=history, writer=self.signer, author=author, commits=planned
                )
                return verified.push(branch, fast_forward)
            written = self._rewrite(git, checked.commits, author)

            def push_once() -> Pushed:
                branches, last = read_branches(git, branch), written[-1]
                if fast_forward:
                    chosen = self._demand_base(branches, branch, written)
                else:
                    present = (name for name in branches.names(branch) if branches.tips.get(name) == last)
                    chosen = next(present, "") or branches.choose(
                        branch, lambda tip: self._is_ours(history, tip, branches, author)
                    )
                if (tip := branches.tips.get(chosen, "")) != last:
                    # Only if the branch still has this tip, or does not exist yet.
                    lease, ref = f"--force-with-lease={HEADS}{chosen}:{tip}", f"{last}:{HEADS}{chosen}"
                    git.run_remote("push", "--quiet", "--porcelain", "--no-verify", lease, remote.url, ref)
                return Pushed(branch=chosen, commit=last)

            try:
                return push_once()
            except GitFailed as exc:
                if not exc.outdated:
                    raise
            return push_once()

    def _demand_base(self, branches: Branches, branch: str, written: tuple[str, ...]) -> str:
        """Return the branch, which must be at the base or already have some of the commits on top of it."""
        branches.demand_other_than_default(branch)
        if (tip := branches.tips.get(branch, "")) not in (self.base_commit, *written):
            raise moved_on(branch, tip, self.base_commit)
        return branch

    def _unbundle(self, git: Git) -> str:
        if self.bundle.stat().st_size > MOST_BUNDLE_BYTES:
            raise Refused(f"the commits are larger than {MOST_BUNDLE_BYTES // 1024 // 1024} MiB")
        with self.bundle.open("rb", buffering=0) as file:
            bundle = read_bundle(file)
            if strangers := bundle.builds_on - {self.base_commit}:
                raise Refused(f"the commits build on {', '.join(sorted(strangers))}, not on the run's base only")
            try:
                git.run(*INDEX_PACK, "--strict", stdin=file)
            except GitFailed as exc:
                raise Refused(f"the commits are not sound ({exc.said})") from exc
        if self.tree and tree_of(git, bundle.tip) != self.tree:
            raise Refused("the commits do not contain what the validators saw")
        return bundle.tip

    def _plan_verified(self, git: Git, commits: tuple[Commit, ...]) -> list[PlannedCommit]:
        """Return what GitHub is to write."""
        trees = [tree_of(git, self.base_commit), *(commit.tree for commit in commits)]
        return [
            PlannedCommit.of(message, commit.tree, compare_trees(git, parent_tree, commit.tree))
            for commit, parent_tree, message in zip(commits, trees, self._messages(commits), strict=False)
        ]

    def _messages(self, commits: tuple[Commit, ...]) -> list[str]:
        """Return the cleaned messages of the commits, with our trailers."""
        trailers = {"Stepflow-Agent": self.agent, RUN_TRAILER: self.run_id, **self._issue_trailer}
        output_filter = OutputFilter(redactor=self.remote.redactor.knowing(self.remote.token))
        return [clean_message(commit.message, trailers, output_filter) for commit in commits]

    def _rewrite(self, git: Git, commits: tuple[Commit, ...], author: Account) -> tuple[str, ...]:
        """Write the same trees as commits by the bot, parents first. Repeating it gives the same commits."""
        new = {self.base_commit: self.base_commit}
        for commit, message in zip(commits, self._messages(commits), strict=True):
            parents = [word for parent in dict.fromkeys(commit.parents) for word in ("-p", new[parent])]
            identity = self._identity(author, commit.committed_at)
            written = git.run("commit-tree", commit.tree, *parents, stdin=message.encode(), env=identity)
            new[commit.oid] = written.decode().strip()
        return tuple(new[commit.oid] for commit in commits)

    def _identity(self, author: Account, time: str) -> dict[str, str]:
        """Return the bot as author and committer."""
        return {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", author.login), ("EMAIL", self._address(author)), ("DATE", f"@{time} +0000"))
        }

    def _is_ours(self, history: Git, tip: str, branches: Branches, author: Account) -> bool:
        """Return whether a branch with this tip may be overwritten: every commit that only it has is one that a run for
        the same issue has pushed, and nobody has changed since.

        The commits themselves say so: a run may have been cut off between its push and its comment, and what a comment
        says may come from a receipt in a forged run folder.
        """
        address = self._address(author)
        return all(
            commit.author == commit.committer == address
            and commit.is_original
            and has_marks(commit.message, self.marks)
            for commit in read_own_commits(history, tip, branches, self.base_commit)
        )

    def _address(self, author: Account) -> str:
        """Return the address that GitHub gives the bot."""
        return f"{author.id}+{author.login}@users.noreply.{urlsplit(self.remote.url).hostname or ''}"

    @property
    def marks(self) -> dict[str, str]:
        """The trailers of the commits that runs for the same issue have pushed, or without an issue this run alone."""
        return {"Stepflow-Agent": self.agent, **(self._issue_trailer or {RUN_TRAILER: self.run_id})}

    @property
    def _issue_trailer(self) -> dict[str, str]:
        return {} if self.issue is None else {"Stepflow-Issue": str(self.issue)}


def read_bundle(file: IO[bytes]) -> Bundle:
    """Read the header and stop at the pack. Raises `Refused` for what is no bundle."""
    if (bundle := Bundle.read(file)) is None:
        raise Refused("what the workspace handed over is not a git bundle.")
    return bundle


@dataclass(frozen=True, kw_only=True)
class PlannedCommit:
    """One commit as the API takes it: the tree that must come of it, what it adds or changes, and what it removes."""

    headline: str
    body: str
    tree: str
    written: tuple[Change, ...]
    removed: tuple[str, ...]

    @classmethod
    def of(cls, message: str, tree: str, changes: Sequence[Change]) -> PlannedCommit:
        """Turn the changes that lead to a tree into a commit for the API."""
        written = tuple(change for change in changes if change.mode != REMOVED)
        removed = tuple(change.path for change in changes if change.mode == REMOVED)
        headline, _, body = message.strip().partition("\n")
        return cls(headline=headline.strip(), body=body.strip(), tree=tree, written=written, removed=removed)

    @property
    def message(self) -> str:
        """The message as GitHub puts it together."""
        return f"{self.headline}\n\n{self.body}"


@dataclass(frozen=True, kw_only=True)
class VerifiedPush:
    """Writes planned commits, parents first, on top of the base of the `bundle`, which is in the repository `git`.
    `history` is a repository for `read_own_commits`; `author` is whose token writes."""

    bundle: BundlePush
    git: Git
    history: Git
    writer: GitHubWriter
    author: Account
    commits: Sequence[PlannedCommit]

    def push(self, branch: str, fast_forward: bool = False) -> Pushed:
        """Write what is not there yet; to `fast_forward`, on this very branch and on top of the base. A branch that
        has some of the commits gets the others only, so that doing it again after a lost answer, or in another run
        that made the same commits, writes nothing twice."""
        push = self._push_on_top if fast_forward else self._push
        try:
            return push(branch)
        except WriteFailed as exc:
            if rule := describe_rule(exc.said):
                exc.hint = rule
            if rule or exc.status not in _SOMEBODY_WAS_FASTER:
                raise
        return push(branch)

    def _push_on_top(self, branch: str) -> Pushed:
        branches = read_branches(self.git, branch)
        branches.demand_other_than_default(branch)
        tip = branches.tips.get(branch, "")
        if not tip or self._standing(tip) is None:
            raise moved_on(branch, tip, self.bundle.base_commit)
        return self._check_signature(branch, self._fill(branch, tip))

    def _push(self, branch: str) -> Pushed:
        branches = read_branches(self.git, branch)

        def may_write(tip: str) -> bool:
            return self._may_write(tip, branches)

        chosen = branches.choose(branch, may_write)
        tip = branches.tips.get(chosen, "")
        if not tip or self._standing(tip) is not None:
            return self._check_signature(chosen, self._fill(chosen, tip))
        beside = branches.choose(f"{branch}-signing", may_write)
        pushed = self._check_signature(beside, self._fill(beside, branches.tips.get(beside, "")))
        self.writer.update_refs((HEADS + chosen, tip, pushed.commit), (HEADS + beside, pushed.commit, ""))
        return replace(pushed, branch=chosen)

    def _may_write(self, tip: str, branches: Branches) -> bool:
        """Return whether we may write to a branch with this tip: it has no commits of its own, or all of them are
        ours."""
        return tip == self.bundle.base_commit or all(
            has_marks(commit.message, self.bundle.marks) and self._is_unchanged(commit)
            for commit in read_own_commits(self.history, tip, branches, self.bundle.base_commit)
        )

    def _is_unchanged(self, commit: Commit) -> bool:
        """Return whether we made the commit. One that GitHub did not sign was pushed by git, which anybody can be."""
        now = self._read_commit(commit.oid)
        return self._is_ours(now) and (bool(now.signature) or commit.is_original)

    def _read_commit(self, oid: str) -> CommitNow:
        """Return a commit that is there. One that was just made may not be known everywhere on GitHub yet: that
        passes, and what is done again then writes nothing twice."""
        try:
            return self.writer.commit(oid)
        except WriteFailed as exc:
            exc.passes |= exc.status in (NOT_FOUND, UNPROCESSABLE)
            raise

    def _is_ours(self, commit: CommitNow) -> bool:
        return commit.is_by(self.author) and has_marks(commit.message, self.bundle.marks)

    def _standing(self, tip: str) -> int | None:
        """Return how many of the planned commits are already below this tip, signed; None if there are others."""
        there: list[CommitNow] = []
        while tip != self.bundle.base_commit:
            if len(there) == len(self.commits):
                return None
            commit = self._read_commit(tip)
            if len(commit.parents) != 1 or not commit.signature or not self._is_ours(commit):
                return None
            there.insert(0, commit)
            tip = commit.parents[0]
        same = all(
            (now.tree, _without_run(now.message)) == (planned.tree, _without_run(planned.message))
            for now, planned in zip(there, self.commits, strict=False)
        )
        return len(there) if same else None

    def _fill(self, branch: str, tip: str) -> str:
        """Write the commits that the branch lacks; the last one. `tip` is empty where there is no branch."""
        standing = self._standing(tip) if tip else None
        if standing is None:
            self.writer.update_refs((HEADS + branch, tip, self.bundle.base_commit))
            standing, tip = 0, self.bundle.base_commit
        for commit in self.commits[standing:]:
            try:
                tip = self._write(branch, tip, commit)
            except WriteFailed as exc:
                if tip == self.bundle.base_commit and not exc.passes:
                    # A branch without a commit says nothing, and somebody would have to clean it up.
                    with suppress(BoundaryError):
                        self.writer.update_refs((HEADS + branch, tip, ""))
                raise
        return tip

    def _write(self, branch: str, head: str, commit: PlannedCommit) -> str:
        contents = blobs_of(self.git, {change.oid for change in commit.written})
        additions = {change.path: b64encode(contents[change.oid]).decode() for change in commit.written}
        message = {"headline": commit.headline, "body": commit.body}
        return self.writer.create_commit(
            branch, head=head, message=message, additions=additions, deletions=commit.removed
        )

    def _check_signature(self, branch: str, commit: str) -> Pushed:
        """Return the branch when GitHub has signed what the validators saw. Raises `BoundaryError` otherwise."""
        now, expected = self._read_commit(commit), self.commits[-1].tree
        if now.tree != expected:
            raise BoundaryError(
                f"GitHub made the tree {now.tree} of the commits on {branch}, and the validators saw {expected}.",
                hint="Do not merge that branch. Set `commits: git`, which supports every tree.",
            )
        if not now.signature:
            raise BoundaryError(
                f"GitHub did not sign the commits on {branch}.",
                hint="This server does not sign what its API writes: set `commits: git`.",
            )
        return Pushed(branch=branch, commit=commit, note=f"signed by GitHub; tree {now.tree} as validated")


def _without_run(message: str) -> str:
    """Return a commit's message without the run that wrote it."""
    return "\n".join(line for line in message.strip().splitlines() if not line.startswith(f"{RUN_TRAILER}: "))
