"""Writes the commits of a run by GitHub's API, so that GitHub signs them: `commits: verified`.

A branch that is new is filled in place. One of ours is replaced in one step by the finished commits, which are made on
a branch beside it: GitHub closes a pull request whose branch stands at its base, even for a second.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from stepflow.boundary.commit_policy import SUBMODULE, SYMLINK, Change, name_some, printable
from stepflow.boundary.git import REMOVED, blobs_of, compare_trees, sizes_of
from stepflow.boundary.retry_policy import CONFLICT, NOT_FOUND, WriteFailed
from stepflow.boundary.target_branch import HEADS, RUN_TRAILER, BranchCommit, Branches, Pushed, has_marks, moved_on
from stepflow.domain.decision import Violation
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from stepflow.boundary.git import Git, GitReader
    from stepflow.boundary.github_api import GitHubWriter
    from stepflow.boundary.github_types import Account, CommitNow

PLAIN, EXECUTABLE = "100644", "100755"
UNPROCESSABLE = 422
#: Of one commit, in one request.
MOST_BYTES = 8 * 1024 * 1024
#: GraphQL's errors without a known type count as 400, and a ref that has moved may be among them; one that is gone is
#: not found.
_SOMEBODY_WAS_FASTER = (400, NOT_FOUND, CONFLICT)
_HINT = "Let the agent do without it, or set `commits: git`, which carries it."


@dataclass(frozen=True, kw_only=True)
class PlannedCommit:
    """One commit as the API takes it: the tree that must come of it, what it adds or changes, and what it removes."""

    headline: str
    body: str
    tree: str
    written: tuple[Change, ...]
    removed: tuple[str, ...]

    @property
    def message(self) -> str:
        """The message as GitHub puts it together."""
        return f"{self.headline}\n\n{self.body}"


def plan_commit(git: GitReader, *, message: str, tree: str, parent_tree: str) -> PlannedCommit:
    """What GitHub is asked for."""
    changes = compare_trees(git, parent_tree, {tree})
    written = tuple(change for change in changes if change.mode != REMOVED)
    removed = tuple(change.path for change in changes if change.mode == REMOVED)
    headline, _, body = message.strip().partition("\n")
    return PlannedCommit(headline=headline.strip(), body=body.strip(), tree=tree, written=written, removed=removed)


def judge_for_api(
    git: GitReader, commits: Sequence[tuple[str, tuple[str, ...], str]], base_tree: str
) -> Iterator[Violation]:
    """What GitHub's API has no words for in commits, parents first, each with its id, its parents and its tree."""
    if merges := [oid[:12] for oid, parents, _ in commits if len(set(parents)) > 1]:
        yield Violation(
            message=f"GitHub's API cannot write a merge commit: {name_some(merges)}",
            advice="Make no merge commit.",
            hint="Let the agent rebase its work, or set `commits: git`, which carries it.",
        )
        return
    trees = [base_tree, *(tree for _, _, tree in commits)]
    for parent_tree, tree in pairwise(trees):
        yield from _judge_for_api(git, compare_trees(git, parent_tree, {tree}))


def _judge_for_api(git: GitReader, changes: Sequence[Change]) -> Iterator[Violation]:
    if reasons := [f"{reason}: {printable(change.path)}" for change in changes if (reason := _not_carried(change))]:
        yield Violation(
            message=f"GitHub's API cannot write {name_some(reasons)}",
            advice="GitHub itself writes the commits of this run, and it can add, change, and remove plain files only: "
            "do without the others.",
            hint=_HINT,
        )
        return
    written = [change for change in changes if change.mode != REMOVED]
    sizes = sizes_of(git, {change.oid for change in written})
    if sum(sizes[change.oid] for change in written) > MOST_BYTES:
        largest = max(written, key=lambda change: sizes[change.oid])
        limit = f"{MOST_BYTES // 1024 // 1024} MiB in one commit"
        yield Violation(
            message=f"GitHub's API is given at most {limit}; the largest file is {printable(largest.path)}",
            advice="Commit less at once.",
            hint=_HINT,
        )


def _not_carried(change: Change) -> str:
    """What about a change the API has no words for; empty when it has."""
    if SUBMODULE in (change.mode, change.mode_before):
        return "a submodule"
    if change.path != change.path.encode(errors="replace").decode():
        return "a name that is not UTF-8"
    if change.mode == REMOVED:
        return ""
    if change.mode == SYMLINK:
        return "a symlink"
    if change.mode_before not in (REMOVED, change.mode):
        return "a change of mode"
    return "an executable file" if change.mode == EXECUTABLE else ""


@dataclass(frozen=True, kw_only=True)
class VerifiedPush:
    """Writes planned commits, parents first, on top of `base`. `marks` are the trailers that say whose work a commit
    is; `author` is whose token writes; `look` reads the branches of the server, and `list_commits` the commits that
    only a branch with this tip has."""

    git: Git
    writer: GitHubWriter
    author: Account
    base: str
    marks: Mapping[str, str]
    commits: Sequence[PlannedCommit]
    look: Callable[[str], Branches]
    list_commits: Callable[[str, Branches], tuple[BranchCommit, ...]]

    def push(self, branch: str, fast_forward: bool = False) -> Pushed:
        """Write what is not there yet; to `fast_forward`, on this very branch and on top of the base. A branch that
        has some of the commits gets the others only, so that doing it again after a lost answer, or in another run
        that made the same commits, writes nothing twice."""
        push = self._push_on_top if fast_forward else self._push
        try:
            return push(branch)
        except WriteFailed as exc:
            if exc.status not in _SOMEBODY_WAS_FASTER:
                raise
        return push(branch)

    def _push_on_top(self, branch: str) -> Pushed:
        branches = self.look(branch)
        branches.demand_other_than_default(branch)
        tip = branches.tips.get(branch, "")
        if not tip or self._standing(tip) is None:
            raise moved_on(branch, tip, self.base)
        return self._pushed(branch, self._fill(branch, tip))

    def _push(self, branch: str) -> Pushed:
        branches = self.look(branch)

        def may_write(tip: str) -> bool:
            return self._may_write(tip, branches)

        chosen = branches.choose(branch, may_write)
        tip = branches.tips.get(chosen, "")
        if not tip or self._standing(tip) is not None:
            return self._pushed(chosen, self._fill(chosen, tip))
        beside = branches.choose(f"{branch}-signing", may_write)
        pushed = self._pushed(beside, self._fill(beside, branches.tips.get(beside, "")))
        self.writer.update_refs((HEADS + chosen, tip, pushed.commit), (HEADS + beside, pushed.commit, ""))
        return replace(pushed, branch=chosen)

    def _may_write(self, tip: str, branches: Branches) -> bool:
        """Whether we may write to a branch with this tip: it has no commits of its own, or all of them are ours."""
        return tip == self.base or all(
            has_marks(commit.message, self.marks) and self._is_unchanged(commit)
            for commit in self.list_commits(tip, branches)
        )

    def _is_unchanged(self, commit: BranchCommit) -> bool:
        """Whether we made the commit. One that GitHub did not sign was pushed by git, which anybody can be."""
        now = self._read_commit(commit.oid)
        return self._is_ours(now) and (bool(now.signature) or commit.is_original)

    def _read_commit(self, oid: str) -> CommitNow:
        """A commit that is there. One that was just made may not be known everywhere on GitHub yet: that passes, and
        what is done again then writes nothing twice."""
        try:
            return self.writer.commit(oid)
        except WriteFailed as exc:
            exc.passes |= exc.status in (NOT_FOUND, UNPROCESSABLE)
            raise

    def _is_ours(self, commit: CommitNow) -> bool:
        return commit.is_by(self.author) and has_marks(commit.message, self.marks)

    def _standing(self, tip: str) -> int | None:
        """How many of the commits are there below this tip, signed; None when anything else is."""
        there: list[CommitNow] = []
        while tip != self.base:
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
            self.writer.update_refs((HEADS + branch, tip, self.base))
            standing, tip = 0, self.base
        for commit in self.commits[standing:]:
            tip = self._write(branch, tip, commit)
        return tip

    def _write(self, branch: str, head: str, commit: PlannedCommit) -> str:
        contents = blobs_of(self.git, {change.oid for change in commit.written})
        additions = {change.path: b64encode(contents[change.oid]).decode() for change in commit.written}
        message = {"headline": commit.headline, "body": commit.body}
        return self.writer.create_commit(
            branch, head=head, message=message, additions=additions, deletions=commit.removed
        )

    def _pushed(self, branch: str, commit: str) -> Pushed:
        """The branch, when GitHub has signed what the validators saw. Raises `BoundaryError` otherwise."""
        now, expected = self._read_commit(commit), self.commits[-1].tree
        if now.tree != expected:
            raise BoundaryError(
                f"GitHub made the tree {now.tree} of the commits on {branch}, and the validators saw {expected}.",
                hint="Do not merge that branch. Set `commits: git`, which carries every tree.",
            )
        if not now.signature:
            raise BoundaryError(
                f"GitHub did not sign the commits on {branch}.",
                hint="This server does not sign what its API writes: set `commits: git`.",
            )
        return Pushed(branch=branch, commit=commit, note=f"signed by GitHub; tree {now.tree} as validated")


def _without_run(message: str) -> str:
    """A commit's message without the run that wrote it."""
    return "\n".join(line for line in message.strip().splitlines() if not line.startswith(f"{RUN_TRAILER}: "))
