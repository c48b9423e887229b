"""Which branch the commits of a run go to: one that holds nothing but commits of earlier runs, or a new one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepflow.boundary.commit_policy import read_trailers
from stepflow.boundary.settings import Refused
from stepflow.errors import BoundaryError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stepflow.boundary.git import Git

MOST_BRANCHES = 20
HEADS = "refs/heads/"
RUN_TRAILER = "Stepflow-Run"
KEPT_IN_BUNDLE = "The commits are kept in work.bundle in the run folder"
WORK_IS_KEPT = f"{KEPT_IN_BUNDLE}, and with `on-failure: push-branch` on a branch as well."
#: How far below its tip a branch is followed. Commits of the base that lie deeper count as the branch's own, so that
#: the branch is left alone.
DEPTH = 1000


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
            raise Refused(f"refused: {branch} is the repository's default branch")

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
                f"{branch} and {MOST_BRANCHES - 1} more branches like it hold somebody else's commits.",
                hint="Delete those that are not needed any more.",
            )
        return chosen


@dataclass(frozen=True, kw_only=True)
class BranchCommit:
    """A commit of a branch; `author` and `committer` are addresses, the times as git prints them."""

    oid: str
    author: str
    committer: str
    authored_at: str
    committed_at: str
    message: str

    @property
    def is_original(self) -> bool:
        """False for a commit that was amended, rebased or cherry-picked: git then keeps the time of its author."""
        return self.authored_at == self.committed_at


def has_marks(message: str, marks: Mapping[str, str]) -> bool:
    """Whether the message ends with these trailers, as the engine writes them: with a run, and no other trailer."""
    trailers = read_trailers(message)
    return RUN_TRAILER in trailers and {RUN_TRAILER: trailers[RUN_TRAILER], **marks} == trailers


def read_own_commits(history: Git, url: str, tip: str, branches: Branches, base: str) -> tuple[BranchCommit, ...]:
    """The commits of the branch with this tip that are neither in the base nor in the default branch, or else its tip.

    `history` is a repository for this purpose alone: it gets commits without their trees.
    """
    known = tuple(dict.fromkeys(oid for oid in (base, branches.default_tip) if oid))
    history.run_remote(
        "fetch", "--quiet", "--no-tags", "--filter=tree:0", f"--depth={DEPTH}", url, tip, *known
    )  # fmt: skip
    commits = _read_commits(history, tip, *(f"^{oid}" for oid in known))
    return commits or _read_commits(history, "--max-count=1", tip)


def _read_commits(history: Git, *revisions: str) -> tuple[BranchCommit, ...]:
    text = history.run(
        "log", "-z", "--encoding=UTF-8", "--no-show-signature", "--no-mailmap",
        "--format=%H%n%ae%n%ce%n%at%n%ct%n%B", *revisions,
    )  # fmt: skip
    return tuple(_read_commit(record) for record in text.decode(errors="replace").split("\0") if record)


def _read_commit(record: str) -> BranchCommit:
    oid, author, committer, authored_at, committed_at, message = record.split("\n", 5)
    return BranchCommit(
        oid=oid,
        author=author,
        committer=committer,
        authored_at=authored_at,
        committed_at=committed_at,
        message=message,
    )


def moved_on(branch: str, tip: str, base: str) -> Refused:
    """Nothing is put on top of what others have pushed since the run began at the commit `base`; `tip` is empty where
    they have deleted the branch."""
    now = f"now stands at {tip[:12]}" if tip else "is gone"
    return Refused(
        f"refused: somebody else has changed the branch {branch} meanwhile: it {now}, and the run began at "
        f"{base[:12]}. Nothing was pushed to it. {WORK_IS_KEPT}",
        hint="Start the run again with a comment `/stepflow run` on the pull request.",
    )


def read_branches(git: Git, url: str, branch: str) -> Branches:
    """The branches of the server now."""
    tips, default, default_tip = {}, "", ""
    for line in git.run_remote("ls-remote", "--symref", url, "HEAD", f"{HEADS}{branch}*").decode().splitlines():
        value, _, name = line.partition("\t")
        if name == "HEAD" and value.startswith("ref: "):
            default = value.removeprefix("ref: ").removeprefix(HEADS)
        elif name == "HEAD":
            default_tip = value
        elif name.startswith(HEADS):
            tips[name.removeprefix(HEADS)] = value
    return Branches(tips=tips, default=default, default_tip=default_tip)
