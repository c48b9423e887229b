"""Checks, rewrites and pushes the bundle of a run's commits: the only way in which code leaves the sandbox.

It goes to a branch that is ours to write: never the default branch, never one with somebody else's commits.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import urlsplit

from stepflow.boundary.commit_check import Commit, check_commits
from stepflow.boundary.commit_policy import CommitRules, clean_message
from stepflow.boundary.git import Git, GitFailed, Remote, follow_move, tree_of
from stepflow.boundary.output_filter import OutputFilter
from stepflow.boundary.settings import MOST_BUNDLE_BYTES, Refused
from stepflow.boundary.target_branch import (
    HEADS,
    RUN_TRAILER,
    Branches,
    Pushed,
    has_marks,
    moved_on,
    read_branches,
    read_own_commits,
)
from stepflow.boundary.verified_push import VerifiedPush, plan_commit
from stepflow.domain.connection import DIRECT, Connection
from stepflow.domain.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable

    from stepflow.boundary.github_api import GitHubWriter
    from stepflow.boundary.github_types import Account


LONGEST_HEADER = 1024 * 1024
#: The pack is for git to check: `index-pack --strict` does so in every version, fetching from a bundle only in some.
_HEADER = re.compile(rb"# v[23] git bundle\n(?:@object-format=sha(?:1|256)\n)?(?:[-0-9a-f].*\n)+\n")
_PREREQUISITE = re.compile(rb"(?m)^-([0-9a-f]{40,64})\b")
_TIP = re.compile(rb"(?m)^([0-9a-f]{40,64}) HEAD$")
#: What git and servers say of a branch that is not where it was; a push whose answer was lost may have moved it itself.
_SOMEBODY_WAS_FASTER = ("stale info", "already exists", "cannot lock ref")


@dataclass(frozen=True, kw_only=True)
class BundlePush:
    """Pushes one bundle. `tree` is the tree that the validators saw, when they ran: another one may not leave.

    `folder` must be the parent's own, out of the sandbox's reach. The server is reached on this `connection`.
    `present_url` asks where the repository is when it is no longer at `remote_url`; it may raise `WriteFailed`.
    """

    remote_url: str
    token: str = field(repr=False)
    bundle: Path
    folder: Path
    base_commit: str
    run_id: str
    agent: str
    issue: int | None = None
    tree: str | None = None
    rules: CommitRules = field(default_factory=CommitRules)
    redactor: Redactor = field(default_factory=Redactor)
    connection: Connection = DIRECT
    present_url: Callable[[], str] | None = None
    #: Where GitHub is to write and sign the commits; without it git pushes them.
    signer: GitHubWriter | None = None

    def push(self, branch: str, *, author: Account, fast_forward: bool = False) -> Pushed:
        """Check and rewrite the bundle's commits, and push them to `branch`, or to `<branch>-2` and so on if that has
        a commit of somebody else's. To `fast_forward` is to put them on top of this very branch, which must stand at
        the base.

        Raises `Refused` when the commits may not leave, `BoundaryError` when git or the server fail.
        """
        return follow_move(self.remote_url, self.present_url, lambda url: self._push(url, branch, author, fast_forward))

    def _push(self, url: str, branch: str, author: Account, fast_forward: bool) -> Pushed:
        remote = Remote(url=url, token=self.token)
        with tempfile.TemporaryDirectory(dir=self.folder, prefix="push-") as scratch:
            object_format = "sha256" if len(self.base_commit) == 64 else "sha1"
            git = Git(
                Path(scratch) / "repository.git",
                remote,
                object_format=object_format,
                redactor=self.redactor,
                connection=self.connection,
            )
            git.run_remote("fetch", "--quiet", "--no-tags", "--depth=1", remote.url, self.base_commit)
            commits = self._checked(git)
            if self.signer:
                return self._plan_verified(git, url, commits, author, self.signer).push(branch, fast_forward)
            written = self._rewrite(git, commits, author)
            history = git.make_sibling("history.git")

            def pushed() -> Pushed:
                branches = read_branches(git, url, branch)
                if fast_forward:
                    return _push_on_top(git, url, branches, branch, commits=written, base=self.base_commit)

                def is_ours(tip: str) -> bool:
                    return self._is_ours(history, url, tip, branches, author)

                return _push_commit(git, url, branches, branch, commit=written[-1], is_ours=is_ours)

            try:
                return pushed()
            except GitFailed as exc:
                if not any(words in exc.said for words in _SOMEBODY_WAS_FASTER):
                    raise
            # Somebody was faster.
            return pushed()

    def _checked(self, git: Git) -> tuple[Commit, ...]:
        """The commits of the bundle, parents first, when they may leave."""
        checked = check_commits(git, self._unbundle(git), base=self.base_commit, rules=self._rules)
        for violation in checked.violations:
            raise Refused(f"refused: {violation.message}", hint=violation.hint)
        return checked.commits

    @property
    def _rules(self) -> CommitRules:
        return replace(self.rules, by_api=self.signer is not None)

    def _unbundle(self, git: Git) -> str:
        if self.bundle.stat().st_size > MOST_BUNDLE_BYTES:
            raise Refused(f"refused: the commits are larger than {MOST_BUNDLE_BYTES // 1024 // 1024} MiB")
        with self.bundle.open("rb", buffering=0) as file:
            bundle = read_bundle(file)
            if strangers := bundle.builds_on - {self.base_commit}:
                raise Refused(
                    f"refused: the commits build on {', '.join(sorted(strangers))}, not on the run's base only"
                )
            try:
                git.run("index-pack", "--stdin", "--fix-thin", "--strict", stdin=file)
            except GitFailed as exc:
                raise Refused(f"refused: the commits are not sound ({exc.said})") from exc
        if self.tree and tree_of(git, bundle.tip) != self.tree:
            raise Refused("refused: the commits do not hold what the validators saw")
        return bundle.tip

    def _plan_verified(
        self, git: Git, url: str, commits: tuple[Commit, ...], author: Account, signer: GitHubWriter
    ) -> VerifiedPush:
        """What GitHub is to write."""
        trees = [tree_of(git, self.base_commit), *(commit.tree for commit in commits)]
        planned = [
            plan_commit(git, message=message, tree=commit.tree, parent_tree=parent_tree)
            for commit, parent_tree, message in zip(commits, trees, self._messages(commits), strict=False)
        ]
        history = git.make_sibling("history.git")
        return VerifiedPush(
            git=git,
            writer=signer,
            author=author,
            base=self.base_commit,
            marks=self._marks,
            commits=planned,
            look=lambda branch: read_branches(git, url, branch),
            list_commits=lambda tip, branches: read_own_commits(history, url, tip, branches, self.base_commit),
        )

    def _messages(self, commits: tuple[Commit, ...]) -> list[str]:
        """The messages that the commits leave with."""
        trailers = {"Stepflow-Agent": self.agent, RUN_TRAILER: self.run_id, **self._issue_trailer}
        output_filter = OutputFilter(redactor=self.redactor.knowing(self.token))
        return [clean_message(commit.message, trailers, output_filter) for commit in commits]

    def _rewrite(self, git: Git, commits: tuple[Commit, ...], author: Account) -> tuple[str, ...]:
        """The same trees in commits that the bot answers for, parents first. Doing it again gives the same commits."""
        new = {self.base_commit: self.base_commit}
        for commit, message in zip(commits, self._messages(commits), strict=True):
            parents = [word for parent in dict.fromkeys(commit.parents) for word in ("-p", new[parent])]
            written = git.run(
                "commit-tree", commit.tree, *parents, stdin=message.encode(), env=self._identity(author, commit.time)
            )
            new[commit.oid] = written.decode().strip()
        return tuple(new[commit.oid] for commit in commits)

    def _identity(self, author: Account, time: str) -> dict[str, str]:
        """The bot as author and committer."""
        return {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", author.login), ("EMAIL", self._address(author)), ("DATE", f"@{time} +0000"))
        }

    def _is_ours(self, history: Git, url: str, tip: str, branches: Branches, author: Account) -> bool:
        """Whether a branch with this tip may be overwritten: every commit that only it has is one that a run for the
        same issue has pushed, and nobody has changed since.

        The commits themselves say so: a run may have been cut off between its push and its comment, and what a comment
        says may come from a receipt in a forged run folder.
        """
        address = self._address(author)
        return all(
            commit.author == commit.committer == address
            and commit.is_original
            and has_marks(commit.message, self._marks)
            for commit in read_own_commits(history, url, tip, branches, self.base_commit)
        )

    def _address(self, author: Account) -> str:
        """The address that GitHub gives the bot."""
        return f"{author.id}+{author.login}@users.noreply.{urlsplit(self.remote_url).hostname or ''}"

    @property
    def _marks(self) -> dict[str, str]:
        """The trailers of the commits that runs for the same issue have pushed, or without an issue this run alone."""
        return {"Stepflow-Agent": self.agent, **(self._issue_trailer or {RUN_TRAILER: self.run_id})}

    @property
    def _issue_trailer(self) -> dict[str, str]:
        return {} if self.issue is None else {"Stepflow-Issue": str(self.issue)}


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """What a bundle says about itself; the file stands at the beginning of its pack."""

    tip: str
    builds_on: frozenset[str]


def read_bundle(file: IO[bytes]) -> Bundle:
    """Read up to the pack. `file` must be unbuffered, so that another process can go on from there."""
    begin = file.tell()
    header = _HEADER.match(file.read(LONGEST_HEADER))
    tip = _TIP.search(header[0]) if header else None
    if header is None or tip is None:
        raise Refused("refused: what the workspace handed over is no git bundle.")
    file.seek(begin + header.end())
    builds_on = frozenset(oid.decode() for oid in _PREREQUISITE.findall(header[0]))
    return Bundle(tip=tip[1].decode(), builds_on=builds_on)


def _push_commit(
    git: Git, url: str, branches: Branches, branch: str, *, commit: str, is_ours: Callable[[str], bool]
) -> Pushed:
    """Push to the branch that has the commit already, else to the one that is ours, else to the first free name."""
    for name in branches.names(branch):
        if branches.tips.get(name) == commit:
            return Pushed(branch=name, commit=commit)
    chosen = branches.choose(branch, is_ours)
    return _push_over(git, url, chosen, commit, branches.tips.get(chosen, ""))


def _push_on_top(git: Git, url: str, branches: Branches, branch: str, *, commits: tuple[str, ...], base: str) -> Pushed:
    """Put the commits, which descend from the base, on top of the branch, as far as they are not there already."""
    branches.demand_other_than_default(branch)
    tip, last = branches.tips.get(branch, ""), commits[-1]
    if tip == last:
        return Pushed(branch=branch, commit=last)
    if tip not in (base, *commits):
        raise moved_on(branch, tip, base)
    return _push_over(git, url, branch, last, tip)


def _push_over(git: Git, url: str, branch: str, commit: str, tip: str) -> Pushed:
    """Push, if the branch still has this tip; if it does not exist yet, where that is empty."""
    lease = f"--force-with-lease={HEADS}{branch}:{tip}"
    git.run_remote("push", "--quiet", "--porcelain", "--no-verify", lease, url, f"{commit}:{HEADS}{branch}")
    return Pushed(branch=branch, commit=commit)
